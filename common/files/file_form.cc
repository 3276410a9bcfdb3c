#include "common/files/file_form.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace dsj {
namespace {

using namespace std::string_view_literals;

struct Magic {
  size_t offset;
  std::string_view bytes;
  FileForm form;
};

constexpr FileForm kLfs = {"a Git LFS pointer, not the file that it stands for",
                           "run git lfs pull in its repository, or download the file itself"};
constexpr FileForm kHtml = {"an HTML page, not the file that the address should give",
                            "download the file itself: a page says that a login or another address "
                            "is needed"};
constexpr FileForm kUtf16 = {"UTF-16 text", "convert it to UTF-8: iconv -f UTF-16 -t UTF-8"};
constexpr FileForm kUtf32 = {"UTF-32 text", "convert it to UTF-8: iconv -f UTF-32 -t UTF-8"};
constexpr char kJsonl[] =
    "write its rows as JSONL: pandas.read_parquet(FILE), or read_feather(FILE), and its "
    "to_json(\"rows.jsonl\", orient=\"records\", lines=True)";
constexpr FileForm kParquet = {"a Parquet file", kJsonl};
constexpr FileForm kEncrypted = {"an encrypted Parquet file", "write it without encryption"};
constexpr FileForm kArrow = {"an Arrow file", kJsonl};
constexpr FileForm kFeather = {"a Feather file of version 1", kJsonl};
constexpr FileForm kExcel = {
    "an Excel workbook",
    "write its rows as JSONL: pandas.read_excel(FILE).to_json(\"rows.jsonl\", orient=\"records\", "
    "lines=True)"};
constexpr FileForm kTar = {"a tar archive", "unpack it: tar -xf"};

/// A longer mark comes before marks that are its prefix.
constexpr auto kMagic = std::to_array<Magic>({
    {0, "version https://git-lfs.github.com/spec/"sv, kLfs},
    {0, "version https://hawser.github.com/spec/"sv, kLfs},
    {0, "\xFF\xFE\0\0"sv, kUtf32},
    {0, "\0\0\xFE\xFF"sv, kUtf32},
    {0, "\xFF\xFE"sv, kUtf16},
    {0, "\xFE\xFF"sv, kUtf16},
    {0, "\x1F\x8B"sv, {"a gzip file", "unpack it: gunzip"}},
    {0, "\x28\xB5\x2F\xFD"sv, {"a zstd file", "unpack it: unzstd"}},
    {0, "BZh"sv, {"a bzip2 file", "unpack it: bunzip2"}},
    {0,
     "\xFD"
     "7zXZ\0"sv,
     {"an xz file", "unpack it: unxz"}},
    {0, "\x04\x22\x4D\x18"sv, {"an lz4 file", "unpack it: unlz4"}},
    {0, "7z\xBC\xAF\x27\x1C"sv, {"a 7z archive", "unpack it: 7z x"}},
    {0, "PAR1"sv, kParquet},
    {0, "PARE"sv, kEncrypted},
    {0, "ARROW1"sv, kArrow},
    {0, "FEA1"sv, kFeather},
    {0, "\xFF\xFF\xFF\xFF"sv, kArrow},  // a stream of messages, as datasets stores them
    {0, "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"sv, kExcel},
    {0,
     "GGUF"sv,
     {"a GGUF file, whose weights are quantised for llama.cpp",
      "take the Hugging Face model that it was made from (safetensors)"}},
    {0, "\x89HDF\r\n\x1A\n"sv, {"an HDF5 file", "take the model's safetensors, or rows as JSONL"}},
    {0, "\x93NUMPY"sv, {"a NumPy array", "write its rows as JSONL"}},
    {0, "SQLite format 3\0"sv, {"an SQLite database", "write its rows as JSONL"}},
    {0, "%PDF-"sv, {"a PDF", "write its text as rows of JSONL"}},
    {257, "ustar"sv, kTar},
});

bool begins_with_word(std::string_view text, std::string_view word) {
  return text.size() >= word.size() &&
         std::ranges::equal(text.substr(0, word.size()), word, {},
                            [](unsigned char c) { return std::tolower(c); });
}

bool is_html(std::string_view head) {
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  const size_t first = head.find_first_not_of(" \t\r\n");
  if (first == head.npos) return false;
  head.remove_prefix(first);
  return begins_with_word(head, "<!doctype html") || begins_with_word(head, "<html") ||
         begins_with_word(head, "<head");
}

/// Whether it is a zip archive whose first entry is part of a workbook.
bool is_workbook(std::string_view head) {
  constexpr size_t kNameAt = 30;
  if (!head.starts_with("PK\x03\x04") || head.size() < kNameAt) return false;
  const std::string_view name = head.substr(kNameAt);
  return name.starts_with("[Content_Types].xml") || name.starts_with("xl/") ||
         name.starts_with("docProps/") || name.starts_with("_rels/");
}

/// Whether it is JSON in UTF-16 without a byte order mark: every other byte is 0.
bool is_bare_utf16(std::string_view head) {
  if (head.size() < 8) return false;
  const bool little = head[0] != 0 && head[1] == 0;
  for (size_t i = 0; i < 8; ++i) {
    if ((head[i] == 0) != ((i % 2 == 1) == little)) return false;
  }
  return little || head[1] != 0;
}

}  // namespace

std::optional<FileForm> file_form(std::string_view head) {
  for (const Magic& magic : kMagic) {
    if (head.size() >= magic.offset && head.substr(magic.offset).starts_with(magic.bytes))
      return magic.form;
  }
  if (is_html(head)) return kHtml;
  if (is_workbook(head)) return kExcel;
  if (!head.empty() && std::ranges::all_of(head, [](char c) { return c == 0; })) {
    return FileForm{"nothing but NUL bytes", "copy or download it again: its content was lost"};
  }
  if (is_bare_utf16(head)) return kUtf16;
  return std::nullopt;
}

Result<std::optional<FileForm>> file_form(const ReadFile& file) {
  std::string head(std::min(kFileFormBytes, static_cast<size_t>(file.size())), '\0');
  if (!head.empty()) DSJ_TRY_STATUS(file.read(0, std::as_writable_bytes(std::span(head))));
  return file_form(head);
}

Status refuse_other_form(const ReadFile& file, const std::string& path, const char* expected) {
  DSJ_TRY(const auto form, file_form(file));
  if (!form) return {};
  return bad_input("is " + std::string(form->name) + ", expected " + expected, path,
                   std::string(form->remedy));
}

}  // namespace dsj

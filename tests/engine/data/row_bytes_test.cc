#include "engine/data/row_bytes.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <map>

#include "common/files/memory_files.h"

namespace dsj::data {
namespace {

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(compressBound(text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string sample(size_t bytes) {
  std::string text;
  for (size_t i = 0; text.size() < bytes; ++i) text += "row " + std::to_string(i * i) + "\n";
  text.resize(bytes);
  return text;
}

struct Read {
  std::string text, error;
  size_t left = 0;  ///< files in the directory while it is open
};

Read read(const std::string& packed, int64_t memory_bytes_max = 8 << 20) {
  MemoryFiles files;
  EXPECT_TRUE(files.write_synced("rows.jsonl", packed));
  const auto file = open_row_bytes(files, "rows.jsonl",
                                   {.directory = "u/v", .memory_bytes_max = memory_bytes_max});
  if (!file) return {.text = {}, .error = file.error().to_string()};
  std::string text(static_cast<size_t>((*file)->size()), '\0');
  EXPECT_TRUE((*file)->read(0, std::as_writable_bytes(std::span(text))));
  char past;
  EXPECT_FALSE((*file)->read((*file)->size(), std::as_writable_bytes(std::span(&past, 1))));
  const auto entries = files.list_dir("u/v");
  return {text, "", entries ? entries->size() : 0};
}

TEST(RowBytes, ByContentAndWhateverTheSize) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1 << 20}, size_t{(5 << 20) + 17}}) {
    const std::string text = sample(bytes);
    for (const std::string& packed :
         {text, gzip(text), zstd(text), gzip(text.substr(0, bytes / 2)) + gzip(text.substr(bytes / 2)),
          zstd(text.substr(0, bytes / 2)) + zstd(text.substr(bytes / 2)),
          gzip(text) + std::string(512, '\0')}) {
      for (const int64_t memory : {int64_t{1000}, int64_t{8} << 20}) {
        const Read found = read(packed, memory);
        EXPECT_EQ(found.error, "");
        EXPECT_EQ(found.text == text, true) << bytes;
        EXPECT_EQ(found.left, 0u) << "nothing is left behind";
      }
    }
  }
}

TEST(RowBytes, DamageIsSaid) {
  const std::string text = sample(100'000);
  for (const auto& packed : {gzip(text), zstd(text)}) {
    EXPECT_NE(read(packed.substr(0, packed.size() / 2)).error.find("rows.jsonl: ends inside"),
              std::string::npos);
    EXPECT_NE(read(packed.substr(0, packed.size() - 1)).error.find("ends inside"),
              std::string::npos);
    std::string damaged = packed;
    for (size_t i = packed.size() / 3; i < packed.size() / 3 + 40; ++i) damaged[i] ^= 0x5A;
    EXPECT_NE(read(damaged).error, "");
    EXPECT_NE(read(packed + "more").error, "") << "text behind it is no member of it";
  }
}

TEST(RowBytes, WhereItUnpacks) {
  std::map<std::string, std::string> set;
  const auto variable = [&set](const char* name) {
    return set.contains(name) ? set[name].c_str() : nullptr;
  };
  EXPECT_EQ(unpack_directory(variable), "/tmp");
  set["TMPDIR"] = "/scratch";
  EXPECT_EQ(unpack_directory(variable), "/scratch");
  set["HOME"] = "/home/a";
  EXPECT_EQ(unpack_directory(variable), "/home/a/.cache/dsj/unpacked");
}

}  // namespace
}  // namespace dsj::data

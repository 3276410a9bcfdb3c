#include "engine/weights/formats/zip_directory.h"

#include <minizip/unzip.h>

#include <array>
#include <cstring>
#include <memory>

namespace dsj::weights {
namespace {

constexpr char kDamaged[] = "the file is damaged or cut off: download or copy it again";
constexpr size_t kNameMax = 4096;

/// A ReadFile as minizip's file functions.
struct Source {
  const ReadFile* file;
  ZPOS64_T position = 0;
};

void* open_source(void* opaque, const void*, int) {
  return opaque;
}
uLong read_source(void*, void* stream, void* out, uLong bytes) {
  auto& s = *static_cast<Source*>(stream);
  const auto size = static_cast<ZPOS64_T>(s.file->size());
  const uLong count = s.position >= size ? 0 : std::min<ZPOS64_T>(bytes, size - s.position);
  if (!s.file->read(static_cast<int64_t>(s.position), {static_cast<std::byte*>(out), count}))
    return 0;
  s.position += count;
  return count;
}
ZPOS64_T tell_source(void*, void* stream) {
  return static_cast<Source*>(stream)->position;
}
long seek_source(void*, void* stream, ZPOS64_T offset, int origin) {
  auto& s = *static_cast<Source*>(stream);
  const auto size = static_cast<ZPOS64_T>(s.file->size());
  const ZPOS64_T base = origin == ZLIB_FILEFUNC_SEEK_SET   ? 0
                        : origin == ZLIB_FILEFUNC_SEEK_CUR ? s.position
                                                           : size;
  if (base + offset < base || base + offset > size) return -1;
  s.position = base + offset;
  return 0;
}
int close_source(void*, void*) {
  return 0;
}
int source_error(void*, void*) {
  return 0;
}

struct Closer {
  void operator()(void* archive) const { unzClose(archive); }
};

/// Adds the archive's current entry.
Status add_entry(unzFile archive, int64_t file_bytes, const std::string& path,
                 std::map<std::string, ZipEntry>& entries) {
  unz_file_info64 info{};
  std::array<char, kNameMax> name{};
  if (unzGetCurrentFileInfo64(archive, &info, name.data(), name.size() - 1, nullptr, 0, nullptr,
                              0) != UNZ_OK ||
      info.size_filename == 0 || info.size_filename >= name.size()) {
    return bad_input("an entry of the zip archive cannot be read", path, kDamaged);
  }
  const std::string what = "zip entry \"" + std::string(name.data(), info.size_filename) + "\" ";
  if (info.flag & 1) return bad_input(what + "is encrypted", path);
  if (info.compression_method != 0 || info.compressed_size != info.uncompressed_size) {
    return bad_input(what + "is compressed; torch.save stores tensors as they are", path);
  }
  if (unzOpenCurrentFile2(archive, nullptr, nullptr, /*raw=*/1) != UNZ_OK) {
    return bad_input(what + "has no local header like its directory's", path, kDamaged);
  }
  const ZPOS64_T begin = unzGetCurrentFileZStreamPos64(archive);
  unzCloseCurrentFile(archive);
  const auto size = static_cast<ZPOS64_T>(file_bytes);
  if (begin > size || info.uncompressed_size > size - begin) {
    return bad_input(what + "ends after the end of the file", path, kDamaged);
  }
  const ZipEntry entry{static_cast<int64_t>(begin), static_cast<int64_t>(info.uncompressed_size),
                       static_cast<uint32_t>(info.crc)};
  if (!entries.emplace(std::string(name.data(), info.size_filename), entry).second) {
    return bad_input(what + "is listed twice", path);
  }
  return {};
}

}  // namespace

Result<std::map<std::string, ZipEntry>> read_zip_directory(const ReadFile& file,
                                                           const std::string& path) {
  // minizip accepts a file whose last record is truncated. So this checks that the file ends with
  // that record, without a comment.
  std::array<char, 22> last{};
  if (file.size() >= int64_t{last.size()}) {
    DSJ_TRY_STATUS(
        file.read(file.size() - int64_t{last.size()}, std::as_writable_bytes(std::span(last))));
  }
  if (std::memcmp(last.data(), "PK\5\6", 4) != 0) {
    return bad_input("it does not end like a zip archive", path, kDamaged);
  }
  Source stream{&file};
  zlib_filefunc64_def functions{open_source, read_source,  nullptr,      tell_source,
                                seek_source, close_source, source_error, &stream};
  const std::unique_ptr<void, Closer> archive(unzOpen2_64(path.c_str(), &functions));
  if (!archive) return bad_input("no zip directory at its end", path, kDamaged);
  unz_global_info64 global{};
  if (unzGetGlobalInfo64(archive.get(), &global) != UNZ_OK) {
    return bad_input("the zip directory cannot be read", path, kDamaged);
  }
  std::map<std::string, ZipEntry> entries;
  int found = global.number_entry == 0 ? UNZ_END_OF_LIST_OF_FILE : unzGoToFirstFile(archive.get());
  for (; found == UNZ_OK; found = unzGoToNextFile(archive.get())) {
    DSJ_TRY_STATUS(add_entry(archive.get(), file.size(), path, entries));
  }
  if (found != UNZ_END_OF_LIST_OF_FILE || entries.size() != global.number_entry) {
    return bad_input("the zip directory ends early", path, kDamaged);
  }
  return entries;
}

}  // namespace dsj::weights

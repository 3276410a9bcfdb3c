#include "engine/weights/formats/zip_writer.h"

#include <minizip/zip.h>

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace dsj::weights {
namespace {

/// A WriteFile as minizip's file functions. minizip seeks back to write an entry's checksum.
struct Sink {
  std::unique_ptr<WriteFile> file;
  int64_t position = 0, size = 0;
  Status status = {};  ///< the first error
};

void* open_sink(void* opaque, const void*, int) {
  return opaque;
}
uLong read_sink(void*, void*, void*, uLong) {
  return 0;
}
uLong write_sink(void*, void* stream, const void* bytes, uLong count) {
  auto& s = *static_cast<Sink*>(stream);
  auto rest = std::span(static_cast<const std::byte*>(bytes), count);
  const auto old = static_cast<size_t>(
      std::min<int64_t>(s.size - s.position, static_cast<int64_t>(rest.size())));
  if (s.status && old > 0) s.status = s.file->rewrite(s.position, rest.first(old));
  if (s.status && old < rest.size()) s.status = s.file->append(rest.subspan(old));
  if (!s.status) return 0;
  s.position += static_cast<int64_t>(count);
  s.size = std::max(s.size, s.position);
  return count;
}
ZPOS64_T tell_sink(void*, void* stream) {
  return static_cast<ZPOS64_T>(static_cast<Sink*>(stream)->position);
}
long seek_sink(void*, void* stream, ZPOS64_T offset, int origin) {
  auto& s = *static_cast<Sink*>(stream);
  const int64_t base = origin == ZLIB_FILEFUNC_SEEK_SET   ? 0
                       : origin == ZLIB_FILEFUNC_SEEK_CUR ? s.position
                                                          : s.size;
  const int64_t to = base + static_cast<int64_t>(offset);
  if (to < 0 || to > s.size) return -1;
  s.position = to;
  return 0;
}
int close_sink(void*, void*) {
  return 0;
}
int sink_error(void*, void* stream) {
  return static_cast<Sink*>(stream)->status ? 0 : 1;
}

/// An extra field that aligns the data after a local header to kAlignment. minizip adds 20 bytes
/// after it for zip64.
std::string padding(int64_t header_at, size_t name_bytes, bool zip64) {
  constexpr int64_t kHeader = 30, kFieldHeader = 4, kZip64Field = 20;
  const int64_t begin = header_at + kHeader + static_cast<int64_t>(name_bytes) + kFieldHeader +
                        (zip64 ? kZip64Field : 0);
  const auto fill = static_cast<size_t>((ZipWriter::kAlignment - begin % ZipWriter::kAlignment) %
                                        ZipWriter::kAlignment);
  // PyTorch also pads with the field "FB".
  std::string field = {'F', 'B', static_cast<char>(fill), static_cast<char>(fill >> 8)};
  return field + std::string(fill, 'Z');
}

constexpr int64_t kZip64From = 0xffffffff;

}  // namespace

struct ZipWriter::Archive {
  Files* files = nullptr;
  std::string path;
  Sink stream;
  zipFile zip = nullptr;

  ~Archive() {
    if (zip) zipClose(zip, nullptr);
  }
  /// Converts minizip's return code to our error.
  Status status(int answer) const {
    if (!stream.status) return stream.status;
    if (answer == ZIP_OK) return {};
    return fail(ErrorKind::Internal, "minizip returned " + std::to_string(answer), path);
  }
  std::string partial() const { return path + ".partial"; }
};

ZipWriter::ZipWriter(std::unique_ptr<Archive> archive) : archive_(std::move(archive)) {}
ZipWriter::ZipWriter(ZipWriter&&) noexcept = default;
ZipWriter& ZipWriter::operator=(ZipWriter&&) noexcept = default;
ZipWriter::~ZipWriter() = default;

Result<ZipWriter> ZipWriter::create(Files& files, const std::string& path) {
  auto archive = std::make_unique<Archive>();
  archive->files = &files;
  archive->path = path;
  DSJ_TRY(archive->stream.file, files.create_write(archive->partial()));
  zlib_filefunc64_def functions{open_sink, read_sink,  write_sink, tell_sink,
                                seek_sink, close_sink, sink_error, &archive->stream};
  archive->zip = zipOpen2_64(path.c_str(), APPEND_STATUS_CREATE, nullptr, &functions);
  if (!archive->zip) return fail(ErrorKind::Internal, "minizip cannot open the archive", path);
  return ZipWriter(std::move(archive));
}

Status ZipWriter::begin(const std::string& name, int64_t bytes) {
  zip_fileinfo info{};
  info.dosDate = (1 << 21) | (1 << 16);  // 1 January 1980, so that files are reproducible
  const bool zip64 = bytes >= kZip64From;
  const std::string extra = padding(archive_->stream.position, name.size(), zip64);
  return archive_->status(zipOpenNewFileInZip4_64(
      archive_->zip, name.c_str(), &info, extra.data(), static_cast<uInt>(extra.size()), nullptr, 0,
      nullptr, /*method=*/0, /*level=*/0, /*raw=*/0, -MAX_WBITS, DEF_MEM_LEVEL, Z_DEFAULT_STRATEGY,
      nullptr, 0, /*versionMadeBy=*/0, /*flagBase=*/0, zip64 ? 1 : 0));
}

Status ZipWriter::append(std::span<const std::byte> bytes) {
  constexpr size_t kPiece = 1 << 30;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kPiece, bytes.size()))) {
    const auto piece = bytes.first(std::min(kPiece, bytes.size()));
    DSJ_TRY_STATUS(archive_->status(
        zipWriteInFileInZip(archive_->zip, piece.data(), static_cast<unsigned>(piece.size()))));
  }
  return {};
}

Status ZipWriter::end() {
  return archive_->status(zipCloseFileInZip(archive_->zip));
}

Status ZipWriter::add(const std::string& name, std::string_view content) {
  DSJ_TRY_STATUS(begin(name, static_cast<int64_t>(content.size())));
  DSJ_TRY_STATUS(append(std::as_bytes(std::span(content))));
  return end();
}

Status ZipWriter::finish() {
  DSJ_TRY_STATUS(archive_->status(zipClose(std::exchange(archive_->zip, nullptr), nullptr)));
  DSJ_TRY_STATUS(archive_->stream.file->sync());
  DSJ_TRY_STATUS(archive_->stream.file->close());
  return archive_->files->rename(archive_->partial(), archive_->path);
}

}  // namespace dsj::weights

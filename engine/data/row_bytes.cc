#include "engine/data/row_bytes.h"

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <vector>

#include "engine/data/row_cache.h"

namespace dsj::data {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;

/// A file whose bytes are in memory.
class BytesInMemory final : public ReadFile {
 public:
  explicit BytesInMemory(std::string bytes) : bytes_(std::move(bytes)) {}
  Status read(int64_t offset, std::span<std::byte> out) const override {
    if (offset < 0 || offset > size() || std::ssize(out) > size() - offset)
      return fail(ErrorKind::Environment, "a read passes the end of what was unpacked");
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }

 private:
  std::string bytes_;
};

/// Collects what is unpacked, first in memory, then in a file.
class Unpacked {
 public:
  Unpacked(Files& files, const UnpackOptions& options) : files_(files), options_(options) {}
  ~Unpacked() {
    file_.reset();
    if (!path_.empty()) (void)files_.remove(path_);
  }
  Unpacked(const Unpacked&) = delete;
  Unpacked& operator=(const Unpacked&) = delete;

  Status append(std::string_view piece) {
    if (!file_ && std::ssize(bytes_) + std::ssize(piece) <= options_.memory_bytes_max) {
      bytes_ += piece;
      return {};
    }
    if (!file_) {
      DSJ_TRY_STATUS(to_disk());
    }
    return file_->append(as_bytes(piece));
  }

  Result<std::unique_ptr<ReadFile>> take() {
    if (!file_) return std::make_unique<BytesInMemory>(std::move(bytes_));
    DSJ_TRY_STATUS(file_->close());
    return files_.open_read(path_);  // it stays readable without its name
  }

 private:
  Status to_disk() {
    static std::atomic<int64_t> number{0};
    DSJ_TRY_STATUS(files_.make_dirs(options_.directory));
    path_ = path_join(options_.directory, "rows-" + std::to_string(getpid()) + "-" +
                                              std::to_string(number++) + ".tmp");
    DSJ_TRY(file_, files_.create_write(path_));
    DSJ_TRY_STATUS(file_->append(as_bytes(bytes_)));
    bytes_ = {};
    return {};
  }

  Files& files_;
  const UnpackOptions& options_;
  std::string bytes_, path_;
  std::unique_ptr<WriteFile> file_;
};

/// What a decoder made of a piece of the packed bytes.
struct Step {
  size_t taken = 0, made = 0;
  bool complete = false;  ///< a member or frame has ended with the bytes that were taken
  const char* problem = nullptr;
};

class Gzip {
 public:
  Gzip() { good_ = inflateInit2(&stream_, 15 + 16) == Z_OK; }
  ~Gzip() { inflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  Step step(std::string_view in, std::span<char> out) {
    if (!good_) return {.problem = "zlib has no memory"};
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    const int code = inflate(&stream_, Z_NO_FLUSH);
    Step done{.taken = in.size() - stream_.avail_in,
              .made = out.size() - stream_.avail_out,
              .complete = code == Z_STREAM_END};
    if (done.complete) good_ = inflateReset(&stream_) == Z_OK;  // another member may follow
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
      done.problem = stream_.msg ? stream_.msg : "zlib cannot read it";
    return done;
  }
  /// gzip pads to a block with zeros.
  static bool ignores(std::string_view rest) {
    return std::ranges::all_of(rest, [](char c) { return c == 0; });
  }

 private:
  z_stream stream_{};
  bool good_ = false;
};

class Zstd {
 public:
  Zstd() : stream_(ZSTD_createDStream()) {}
  ~Zstd() { ZSTD_freeDStream(stream_); }
  Zstd(const Zstd&) = delete;
  Zstd& operator=(const Zstd&) = delete;

  Step step(std::string_view in, std::span<char> out) {
    if (stream_ == nullptr) return {.problem = "zstd has no memory"};
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const size_t code = ZSTD_decompressStream(stream_, &to, &from);
    if (ZSTD_isError(code)) return {.problem = ZSTD_getErrorName(code)};
    return {.taken = from.pos, .made = to.pos, .complete = code == 0};
  }
  static bool ignores(std::string_view) { return false; }

 private:
  ZSTD_DStream* stream_;
};

template <typename Decoder>
Result<std::unique_ptr<ReadFile>> unpack(Files& files, const ReadFile& packed,
                                         const std::string& path, const UnpackOptions& options) {
  Decoder decoder;
  Unpacked unpacked(files, options);
  std::string in;
  std::vector<char> out(kPieceBytes);
  bool complete = false;
  for (int64_t done = 0; done < packed.size();) {
    in.resize(static_cast<size_t>(std::min(kPieceBytes, packed.size() - done)));
    DSJ_TRY_STATUS(packed.read(done, std::as_writable_bytes(std::span(in))));
    std::string_view left = in;
    for (bool full = true; !left.empty() || full;) {
      if (complete && Decoder::ignores(left)) left = {};
      if (complete && left.empty()) break;
      const Step step = decoder.step(left, out);
      if (step.problem != nullptr)
        return bad_input(std::string("is compressed and damaged: ") + step.problem, path,
                         "copy or download it again");
      left.remove_prefix(step.taken);
      complete = step.complete;
      full = step.made == out.size();
      DSJ_TRY_STATUS(unpacked.append(std::string_view(out.data(), step.made)));
      if (step.taken == 0 && step.made == 0 && !complete) break;
    }
    done += static_cast<int64_t>(in.size());
  }
  if (!complete)
    return bad_input("ends inside its compressed content", path, "copy or download it again");
  return unpacked.take();
}

}  // namespace

Result<std::unique_ptr<ReadFile>> open_row_bytes(Files& files, const std::string& path,
                                                 const UnpackOptions& options) {
  DSJ_TRY(auto file, files.open_read(path));
  std::string head(static_cast<size_t>(std::min<int64_t>(4, file->size())), '\0');
  DSJ_TRY_STATUS(file->read(0, std::as_writable_bytes(std::span(head))));
  if (head.starts_with("\x1F\x8B")) return unpack<Gzip>(files, *file, path, options);
  if (head == "\x28\xB5\x2F\xFD") return unpack<Zstd>(files, *file, path, options);
  return file;
}

std::string unpack_directory(const std::function<const char*(const char*)>& variable) {
  if (const std::string cache = row_cache_directory(variable); !cache.empty())
    return path_join(path_parent(cache), "unpacked");
  const char* temporary = variable("TMPDIR");
  return temporary != nullptr && *temporary == '/' ? temporary : "/tmp";
}

}  // namespace dsj::data

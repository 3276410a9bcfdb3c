#include "engine/data/files/row_bytes.h"

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "engine/data/files/columns.h"
#include "engine/data/files/content_cache.h"
#include "engine/data/files/row_cache.h"

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

/// A file that consists of the first bytes of another.
class Beginning final : public ReadFile {
 public:
  Beginning(std::unique_ptr<ReadFile> file, int64_t size) : file_(std::move(file)), size_(size) {}
  Status read(int64_t offset, std::span<std::byte> out) const override {
    if (offset < 0 || offset > size_ || std::ssize(out) > size_ - offset)
      return fail(ErrorKind::Environment, "a read passes the end of what was unpacked");
    return file_->read(offset, out);
  }
  int64_t size() const override { return size_; }

 private:
  std::unique_ptr<ReadFile> file_;
  int64_t size_;
};

/// The tail of a cached file, which detects truncation: a magic number and the size of the text.
constexpr std::string_view kKeptMagic = "dsjtext1";
constexpr int64_t kKeptTailBytes = 16;
constexpr int64_t kKeptSeconds = 3600;

std::string kept_tail(int64_t bytes) {
  std::string tail(kKeptMagic);
  tail.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  return tail;
}

/// Opens the cached text of a packed file. Null if there is no complete one.
std::unique_ptr<ReadFile> find_kept(Files& files, const ContentCache& cache,
                                    const std::string& content) {
  for (const std::string& path : cache.find(content)) {
    auto file = files.open_read(path);
    if (!file || (*file)->size() < kKeptTailBytes) continue;
    const int64_t bytes = (*file)->size() - kKeptTailBytes;
    std::string tail(kKeptTailBytes, '\0');
    if ((*file)->read(bytes, std::as_writable_bytes(std::span(tail))) && tail == kept_tail(bytes))
      return std::make_unique<Beginning>(std::move(*file), bytes);
  }
  return nullptr;
}

/// Collects unpacked text, first in memory, then in a file.
class Unpacked {
 public:
  /// `cache`: caches a file under the key `content`; null means no caching.
  Unpacked(Files& files, const UnpackOptions& options, ContentCache* cache, std::string content)
      : files_(files), options_(options), cache_(cache), content_(std::move(content)) {}
  ~Unpacked() {
    file_.reset();
    if (!path_.empty()) (void)files_.remove(path_);
  }
  Unpacked(const Unpacked&) = delete;
  Unpacked& operator=(const Unpacked&) = delete;

  Status append(std::string_view piece) {
    bytes_written_ += std::ssize(piece);
    if (!file_ && bytes_written_ <= options_.memory_bytes_max) {
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
    if (cache_ == nullptr) {
      DSJ_TRY_STATUS(file_->close());
      return files_.open_read(path_);  // an unlinked file stays readable
    }
    DSJ_TRY_STATUS(file_->append(as_bytes(kept_tail(bytes_written_))));
    DSJ_TRY_STATUS(file_->sync());
    DSJ_TRY_STATUS(file_->close());
    DSJ_TRY(auto written, files_.open_read(path_));
    if (cache_->publish(content_)) path_.clear();
    return std::make_unique<Beginning>(std::move(written), bytes_written_);
  }

 private:
  Status to_disk() {
    static std::atomic<int64_t> number{0};
    if (cache_ != nullptr) {
      DSJ_TRY(path_, cache_->temporary(content_));
    } else {
      DSJ_TRY_STATUS(files_.make_dirs(options_.directory));
      path_ = path_join(options_.directory, "rows-" + std::to_string(getpid()) + "-" +
                                                std::to_string(number++) + ".tmp");
    }
    DSJ_TRY(file_, files_.create_write(path_));
    DSJ_TRY_STATUS(file_->append(as_bytes(bytes_)));
    bytes_ = {};
    return {};
  }

  Files& files_;
  const UnpackOptions& options_;
  ContentCache* cache_;
  std::string content_, bytes_, path_;
  int64_t bytes_written_ = 0;
  std::unique_ptr<WriteFile> file_;
};

/// The result of decoding a piece of the packed bytes.
struct Step {
  size_t taken = 0, made = 0;
  bool complete = false;  ///< a member or frame ended after these bytes
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
  /// gzip may pad a file with zeros.
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
Status unpack(const ReadFile& packed, const std::string& path, Unpacked& unpacked) {
  Decoder decoder;
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
  return {};
}

/// How a file is packed.
struct Packing {
  Status (*unpack)(const ReadFile&, const std::string&, Unpacked&) = nullptr;
  std::optional<ColumnForm> columns;
};

std::optional<Packing> packing_of(std::string_view head) {
  if (head.starts_with("\x1F\x8B")) return Packing{&unpack<Gzip>, {}};
  if (head.starts_with("\x28\xB5\x2F\xFD")) return Packing{&unpack<Zstd>, {}};
  if (const auto form = column_form(head)) return Packing{nullptr, form};
  return std::nullopt;
}

Result<std::unique_ptr<ReadFile>> text_of(Files& files, const ReadFile& packed,
                                          const std::string& path, const Packing& packing,
                                          const UnpackOptions& options, ContentCache* cache,
                                          const std::string& content) {
  Unpacked unpacked(files, options, cache, content);
  if (packing.columns) {
    DSJ_TRY_STATUS(columns_to_lines(
        packed, path, *packing.columns,
        [&unpacked](std::string_view piece) { return unpacked.append(piece); },
        options.columns_plugin));
  } else {
    DSJ_TRY_STATUS(packing.unpack(packed, path, unpacked));
  }
  return unpacked.take();
}

}  // namespace

Result<RowBytes> open_row_bytes(Files& files, const std::string& path,
                                const UnpackOptions& options) {
  constexpr int64_t kHeadBytes = 8;
  RowBytes rows;
  DSJ_TRY(rows.file, files.open_read(path));
  std::string head(static_cast<size_t>(std::min(kHeadBytes, rows.file->size())), '\0');
  DSJ_TRY_STATUS(rows.file->read(0, std::as_writable_bytes(std::span(head))));
  const auto packing = packing_of(head);
  if (!packing) return rows;
  rows.lines = packing->columns.has_value();
  const std::unique_ptr<ReadFile> packed = std::move(rows.file);
  if (!options.keep) {
    DSJ_TRY(rows.file, text_of(files, *packed, path, *packing, options, nullptr, ""));
    return rows;
  }
  // 2: structs without null fields
  DSJ_TRY(rows.content, row_key(*packed, rows.lines ? "unpacked columns 2" : "unpacked"));
  ContentCache cache(files, {.directory = options.directory,
                             .suffix = ".text",
                             .bytes_max = options.kept_bytes_max,
                             .kept_seconds = kKeptSeconds,
                             .now = options.now,
                             .process = options.process});
  rows.file = find_kept(files, cache, rows.content);
  if (rows.file) return rows;
  (void)files.make_dirs(options.directory);
  const ProcessLock alone(cache.lock_path(rows.content));
  rows.file = find_kept(files, cache, rows.content);  // another process may have unpacked it
  if (rows.file) return rows;
  DSJ_TRY(rows.file, text_of(files, *packed, path, *packing, options, &cache, rows.content));
  return rows;
}

std::string unpack_directory(const std::function<const char*(const char*)>& variable) {
  if (const std::string cache = row_cache_directory(variable); !cache.empty())
    return path_join(path_parent(cache), "unpacked");
  const char* temporary = variable("TMPDIR");
  return temporary != nullptr && *temporary == '/' ? temporary : "/tmp";
}

}  // namespace dsj::data

#include "common/files/posix_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/check.h"
#include "common/files/file_error.h"

namespace dsj {
namespace {

/// The most bytes per system call. Linux's own limit is 2 GiB - 4 KiB.
constexpr size_t kBytesPerCallMax = size_t{1} << 30;

std::unexpected<Error> errno_error(const std::string& operation, const std::string& path,
                                   int number = errno) {
  return std::unexpected(file_error(operation, path, number));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

int open_retrying(const char* path, int flags, mode_t mode = 0) {
  int number;
  do {
    number = ::open(path, flags | O_CLOEXEC, mode);
  } while (number < 0 && errno == EINTR);
  return number;
}

class PosixReadFile final : public ReadFile {
 public:
  PosixReadFile(Descriptor descriptor, std::string path, int64_t size)
      : descriptor_(std::move(descriptor)), path_(std::move(path)), size_(size) {}

  Status read(int64_t offset, std::span<std::byte> out) const override {
    size_t done = 0;
    while (done < out.size()) {
      const size_t wanted = std::min(out.size() - done, kBytesPerCallMax);
      const ssize_t got = ::pread(descriptor_.get(), out.data() + done, wanted,
                                  static_cast<off_t>(offset) + static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        return errno_error(
            "reading " + std::to_string(out.size()) + " bytes at " + std::to_string(offset), path_);
      }
      if (got == 0) {
        return fail(ErrorKind::Environment,
                    "the file ends after " + std::to_string(offset + int64_t(done)) + " bytes, " +
                        std::to_string(offset + int64_t(out.size())) + " are needed",
                    path_);
      }
      done += static_cast<size_t>(got);
    }
    return {};
  }
  int64_t size() const override { return size_; }

 private:
  Descriptor descriptor_;
  std::string path_;
  int64_t size_;
};

class PosixWriteFile final : public WriteFile {
 public:
  PosixWriteFile(Descriptor descriptor, std::string path)
      : descriptor_(std::move(descriptor)), path_(std::move(path)) {}

  Status append(std::span<const std::byte> bytes) override {
    size_t done = 0;
    while (done < bytes.size()) {
      const size_t wanted = std::min(bytes.size() - done, kBytesPerCallMax);
      const ssize_t put = ::write(descriptor_.get(), bytes.data() + done, wanted);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) {
        return errno_error("writing " + std::to_string(bytes.size()) + " bytes at " +
                               std::to_string(written_ + int64_t(done)),
                           path_, put == 0 ? EIO : errno);
      }
      done += static_cast<size_t>(put);
    }
    written_ += static_cast<int64_t>(bytes.size());
    return {};
  }
  Status rewrite(int64_t offset, std::span<const std::byte> bytes) override {
    DSJ_CHECK(offset >= 0 && offset + int64_t(bytes.size()) <= written_);
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t put = ::pwrite(descriptor_.get(), bytes.data() + done, bytes.size() - done,
                                   offset + static_cast<off_t>(done));
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) {
        return errno_error(
            "writing " + std::to_string(bytes.size()) + " bytes at " + std::to_string(offset),
            path_, put == 0 ? EIO : errno);
      }
      done += static_cast<size_t>(put);
    }
    return {};
  }
  Status sync() override {
    while (::fsync(descriptor_.get()) != 0) {
      if (errno != EINTR) {
        return errno_error("making " + std::to_string(written_) + " bytes durable", path_);
      }
    }
    return {};
  }
  Status close() override {
    // Not retried after EINTR: Linux has already closed the descriptor.
    if (::close(descriptor_.release()) != 0 && errno != EINTR) {
      return errno_error("closing after " + std::to_string(written_) + " bytes", path_);
    }
    return {};
  }

 private:
  Descriptor descriptor_;
  std::string path_;
  int64_t written_ = 0;
};

EntryKind kind_of(const struct stat& info) {
  return S_ISDIR(info.st_mode) ? EntryKind::Directory : EntryKind::File;
}

}  // namespace

Result<std::unique_ptr<ReadFile>> PosixFiles::open_read(const std::string& path) {
  // Opening a pipe would wait for its writer, and it has no positions.
  if (struct stat before;
      ::stat(path.c_str(), &before) == 0 && (S_ISFIFO(before.st_mode) || S_ISSOCK(before.st_mode)))
    return bad_input("is a pipe, a file is expected", path, "write what it gives to a file first");
  Descriptor descriptor(open_retrying(path.c_str(), O_RDONLY));
  if (descriptor.get() < 0) return errno_error("opening for reading", path);
  struct stat info;
  if (::fstat(descriptor.get(), &info) != 0) return errno_error("asking for the size", path);
  if (S_ISDIR(info.st_mode)) return bad_input("is a directory, a file is expected", path);
  return std::make_unique<PosixReadFile>(std::move(descriptor), path, info.st_size);
}

Result<std::unique_ptr<WriteFile>> PosixFiles::create_write(const std::string& path) {
  Descriptor descriptor(open_retrying(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666));
  if (descriptor.get() < 0) return errno_error("creating", path);
  return std::make_unique<PosixWriteFile>(std::move(descriptor), path);
}

Status PosixFiles::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return errno_error("renaming to " + to, from);
  return {};
}

Result<bool> PosixFiles::exchange(const std::string& a, const std::string& b) {
  // A direct system call, because musl and older glibc have no wrapper.
  if (::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) {
    return true;
  }
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
  return errno_error("swapping with " + b, a);
}

Status PosixFiles::remove(const std::string& path) {
  if (::remove(path.c_str()) != 0) return errno_error("removing", path);
  return {};
}

Status PosixFiles::make_dir(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return {};
  const int number = errno;
  struct stat info;
  if (number == EEXIST && ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return {};
  return errno_error("creating the directory", path, number);
}

Result<std::vector<DirEntry>> PosixFiles::list_dir(const std::string& path) {
  std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
  if (!directory) return errno_error("listing", path);
  std::vector<DirEntry> entries;
  errno = 0;
  while (const dirent* row = ::readdir(directory.get())) {
    const std::string name = row->d_name;
    if (name == "." || name == "..") continue;
    struct stat info;
    if (::fstatat(::dirfd(directory.get()), row->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      // It disappeared since the listing: another process of the run cleans up too.
      if (errno == ENOENT) {
        errno = 0;
        continue;
      }
      return errno_error("looking at an entry", path_join(path, name));
    }
    entries.push_back({name, kind_of(info)});
    errno = 0;
  }
  if (errno != 0) return errno_error("listing", path);
  std::ranges::sort(entries, {}, &DirEntry::name);
  return entries;
}

Result<EntryKind> PosixFiles::kind(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0) return kind_of(info);
  if (errno == ENOENT || errno == ENOTDIR) return EntryKind::Absent;
  return errno_error("looking at the path", path);
}

Status PosixFiles::sync_dir(const std::string& path) {
  Descriptor descriptor(open_retrying(path.c_str(), O_RDONLY | O_DIRECTORY));
  if (descriptor.get() < 0) return errno_error("opening the directory", path);
  while (::fsync(descriptor.get()) != 0) {
    // Some network and overlay file systems cannot fsync a directory; rename is synchronous there.
    if (errno == EINVAL || errno == ENOTSUP) return {};
    if (errno != EINTR) return errno_error("making the directory durable", path);
  }
  return {};
}

}  // namespace dsj

#include "engine/aio/open.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "common/check.h"
#include "engine/aio/threaded_file.h"
#include "engine/aio/uring_file.h"

namespace dsj::aio {
namespace {

Status preallocate(const std::string& path, int64_t bytes) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return fail(ErrorKind::Environment, "creating: " + errno_text(errno), path);
  struct statvfs space {};
  int64_t free = INT64_MAX;
  if (::fstatvfs(descriptor, &space) == 0)
    free = static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
  // Checked first, so that a disk that is too small is not filled.
  int failed = bytes > free ? ENOSPC : 0;
  while (bytes > 0 && failed == 0) {
    failed = ::posix_fallocate(descriptor, 0, bytes);
    if (failed == 0) break;
    if (failed == EINTR) failed = 0;
  }
  ::close(descriptor);
  if (failed == 0) return {};
  ::unlink(path.c_str());
  const bool full = failed == ENOSPC || failed == EDQUOT || failed == EFBIG;
  return fail(ErrorKind::Environment,
              std::to_string(bytes) + " bytes are needed, " + std::to_string(free) +
                  " are free: " + errno_text(failed),
              path, full ? "free space there, or name another volume" : "");
}

/// Reads the first unit and writes it back, to test whether this implementation works on this file.
Status try_out(BlockFile& file) {
  if (file.size() == 0) return {};
  void* memory = std::aligned_alloc(kAlign, kAlign);
  DSJ_CHECK(memory);
  const std::span<std::byte> unit(static_cast<std::byte*>(memory), kAlign);
  Status status = file.wait(file.read(0, unit));
  if (status) status = file.wait(file.write(0, unit));
  std::free(memory);
  return status;
}

using Made = Result<std::unique_ptr<BlockFile>>;

Made try_implementation(const std::string& name, const std::string& path, int64_t bytes,
                        const Options& options) {
  const bool direct = name != "threads";
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0));
  if (descriptor < 0) {
    return fail(ErrorKind::Environment,
                std::string(direct ? "opening with O_DIRECT: " : "opening: ") + errno_text(errno),
                path);
  }
  std::unique_ptr<BlockFile> file;
  if (name == "io_uring") {
    auto made = make_uring_file(descriptor, path, bytes, options);
    if (!made) {
      ::close(descriptor);
      return made;
    }
    file = std::move(*made);
  } else {
    file = std::make_unique<ThreadedFile>(raw_descriptor(descriptor), path, bytes, options,
                                          direct ? "O_DIRECT threads" : "threads");
  }
  if (auto works = try_out(*file); !works) return std::unexpected(works.error());
  return file;
}

}  // namespace

Result<Created> create_block_file(const std::string& path, int64_t bytes, const Options& options,
                                  const std::string& only) {
  DSJ_CHECK(bytes % kAlign == 0);
  DSJ_TRY_STATUS(preallocate(path, bytes));
  Created created;
  Error last;
  for (const char* name : {"io_uring", "O_DIRECT threads", "threads"}) {
    if (!only.empty() && only != name) continue;
    auto made = try_implementation(name, path, bytes, options);
    if (made) {
      created.file = std::move(*made);
      return created;
    }
    last = made.error();
    created.passed_over.push_back(std::string(name) + ": " + last.message);
  }
  ::unlink(path.c_str());
  return std::unexpected(last);
}

}  // namespace dsj::aio

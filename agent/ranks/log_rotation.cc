#include "agent/ranks/log_rotation.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "agent/ranks/spawn.h"
#include "common/log.h"

namespace dsj::agent {
namespace {

/// Copies from `at` to the end. Returns where the copy ends, or -1 with errno.
int64_t copy_rest(int from, int to, int64_t at) {
  std::vector<char> part(1 << 20);
  while (true) {
    const ssize_t got = pread(from, part.data(), part.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? -1 : at;
    for (ssize_t done = 0; done < got;) {
      const ssize_t wrote = write(to, part.data() + done, static_cast<size_t>(got - done));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return -1;
      done += wrote;
    }
    at += got;
  }
}

}  // namespace

Result<int64_t> log_bytes_max(const char* text) {
  if (text == nullptr || *text == 0) return kLogBytesMaxDefault;
  int64_t bytes = 0;
  const char* end = text + std::strlen(text);
  const auto [last, problem] = std::from_chars(text, end, bytes);
  if (problem == std::errc{} && last == end && bytes >= kLogBytesMaxLeast) return bytes;
  return bad_input("\"" + std::string(text) + "\" is not a number of bytes from " +
                       std::to_string(kLogBytesMaxLeast) + " on",
                   kEnvLogBytesMax);
}

std::string rotated_log(const std::string& path) {
  return path + ".1";
}

LogRotation::LogRotation(int64_t bytes_max, std::chrono::seconds every)
    : bytes_max_(bytes_max), every_(every) {}

LogRotation::~LogRotation() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void LogRotation::watch(const std::string& path) {
  const std::lock_guard lock(mutex_);
  paths_.insert(path);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void LogRotation::forget(const std::string& path) {
  const std::lock_guard lock(mutex_);
  paths_.erase(path);
}

void LogRotation::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, every_, [&] { return stop_; })) {
    lock.unlock();
    look();
    lock.lock();
  }
}

void LogRotation::look() {
  const std::lock_guard one(looking_);
  std::set<std::string> paths;
  {
    const std::lock_guard lock(mutex_);
    paths = paths_;
  }
  for (const std::string& path : paths)
    if (size_of(path) > bytes_max_) rotate(path);
}

void LogRotation::rotate(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  const std::string part = path + ".part", kept = rotated_log(path);
  const int copy = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  int64_t copied = copy < 0 ? -1 : copy_rest(file, copy, 0);
  // A reader that finds the file truncated reads the rest here (log_mirror.h).
  if (copied >= 0 && rename(part.c_str(), kept.c_str()) == 0) {
    copied = copy_rest(file, copy, copied);
  } else {
    copied = -1;
  }
  if (copied < 0) {
    const std::string why = std::strerror(errno);
    unlink(part.c_str());
    unlink(kept.c_str());
    if (!std::exchange(warned_, true))
      log::warn("cannot keep the older part of " + path + ": " + why +
                "; it is dropped. Later full logs are cut without a further warning");
  }
  if (ftruncate(file, 0) != 0) log::warn("cannot cut " + path + ": " + std::strerror(errno));
  if (copy >= 0) close(copy);
  close(file);
}

}  // namespace dsj::agent

#include "agent/ranks/log_mirror.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "agent/ranks/log_rotation.h"
#include "agent/ranks/spawn.h"

namespace dsj::agent {
namespace {

constexpr size_t kPartBytes = 64 * 1024;
constexpr size_t kLineBytes = 16 * 1024;  ///< longer lines are cut

}  // namespace

LogMirror::LogMirror(int fd, int64_t behind_bytes_max)
    : fd_(fd), behind_bytes_max_(behind_bytes_max) {
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
}

void LogMirror::follow(int rank, const std::string& path, int64_t from) {
  const auto known = logs_.find(rank);
  if (known != logs_.end() && known->second.path == path && known->second.from == from) return;
  if (known != logs_.end()) {  // the end of the previous attempt's log
    take(rank, known->second);
    if (!known->second.partial.empty()) line(rank, known->second.partial);
  }
  logs_[rank] = {.path = path, .from = from, .next = from};
}

void LogMirror::line(int rank, const std::string& text) {
  waiting_ += "[rank " + std::to_string(rank) + "] " + text + "\n";
}

/// Reads one part. Returns false if there is none.
bool LogMirror::take(int rank, Followed& log) {
  if (size_of(log.path) < log.next) {  // it was truncated (log_rotation.h)
    const std::string kept = rotated_log(log.path);
    while (take_part(rank, kept, log)) {
    }
    log.next = 0;
  }
  return take_part(rank, log.path, log);
}

bool LogMirror::take_part(int rank, const std::string& path, Followed& log) {
  const int64_t behind = size_of(path) - log.next;
  if (behind <= 0) return false;
  if (behind > behind_bytes_max_) {
    const int64_t skipped = behind - behind_bytes_max_ / 2;
    line(rank, "(" + std::to_string(skipped) + " bytes left out here: see " + path + ")");
    log.next += skipped;
    log.partial.clear();
  }
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::string part(kPartBytes, '\0');
  const ssize_t got = pread(fd, part.data(), part.size(), log.next);
  close(fd);
  if (got <= 0) return false;
  log.next += got;
  log.partial.append(part, 0, static_cast<size_t>(got));
  size_t start = 0;
  for (size_t end; (end = log.partial.find('\n', start)) != std::string::npos; start = end + 1) {
    line(rank, log.partial.substr(start, end - start));
  }
  log.partial.erase(0, start);
  if (log.partial.size() > kLineBytes) {
    line(rank, log.partial);
    log.partial.clear();
  }
  return true;
}

bool LogMirror::send() {
  size_t sent = 0;
  while (sent < waiting_.size()) {
    const ssize_t wrote = write(fd_, waiting_.data() + sent, waiting_.size() - sent);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno != EAGAIN) waiting_.clear();  // the reader is gone
    if (wrote <= 0) break;
    sent += static_cast<size_t>(wrote);
  }
  waiting_.erase(0, sent);
  return waiting_.empty();
}

void LogMirror::turn() {
  for (auto& [rank, log] : logs_) {
    if (!send()) return;
    take(rank, log);
  }
  send();
}

void LogMirror::finish(Time patience) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + patience;
  for (auto& [rank, log] : logs_) {
    for (bool more = true; more && Clock::now() < end;) {
      while (!send() && Clock::now() < end) {
        pollfd entry{fd_, POLLOUT, 0};
        poll(&entry, 1, 50);
      }
      more = take(rank, log);
    }
    if (!log.partial.empty()) line(rank, log.partial);
    log.partial.clear();
  }
  while (!send() && Clock::now() < end) {
    pollfd entry{fd_, POLLOUT, 0};
    poll(&entry, 1, 50);
  }
}

}  // namespace dsj::agent

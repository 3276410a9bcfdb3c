#include "kube/token_source.h"

#include "common/files/posix_files.h"

namespace dsj::kube {

std::string TokenSource::token(Clock::time_point now) {
  if (file_.empty()) return fixed_;
  const std::lock_guard lock(mutex_);
  if (stale_ || now - read_at_ >= std::chrono::minutes(1)) {
    PosixFiles files;
    if (auto text = files.read_all(file_, 1 << 20)) {
      while (!text->empty() && std::isspace(static_cast<unsigned char>(text->back()))) {
        text->pop_back();
      }
      if (!text->empty()) current_ = std::move(*text);
    }
    read_at_ = now;
    stale_ = false;
  }
  return current_;
}

void TokenSource::refused() {
  const std::lock_guard lock(mutex_);
  stale_ = true;
}

}  // namespace dsj::kube

#include "engine/train/inputs/events.h"

#include <unistd.h>

#include <cerrno>

#include "common/log.h"

namespace dsj::train {

void Events::emit(const report::Event& event) const {
  if (fd_ < 0) return;
  const std::string line = report::to_line(event);
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t n = ::write(fd_, line.data() + sent, line.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    sent += static_cast<size_t>(n);
  }
}

void Events::warn(const std::string& message) const {
  log::warn(message);
  emit(report::Warning{.message = message});
}

}  // namespace dsj::train

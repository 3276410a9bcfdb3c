#include "engine/train/events.h"

#include <unistd.h>

#include <cerrno>

#include "common/contract.h"
#include "common/log.h"

namespace dsj::train {

void Events::emit(const char* event, nlohmann::json fields) const {
  if (fd_ < 0) return;
  fields["event"] = event;
  const std::string line =
      fields.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t n = ::write(fd_, line.data() + sent, line.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    sent += static_cast<size_t>(n);
  }
}

void Events::warn(const std::string& message) const {
  log::warn(message);
  emit(contract::kEventWarning, {{"message", message}});
}

}  // namespace dsj::train

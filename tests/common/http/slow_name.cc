#include "tests/common/http/slow_name.h"

#include <dlfcn.h>
#include <netdb.h>

#include <condition_variable>
#include <mutex>
#include <string_view>

namespace dsj {
namespace {

std::mutex slow_mutex;
std::condition_variable slow_changed;
bool slow = false;
int slow_look_ups = 0;

/// False: it is another name.
bool slow_look_up(const char* name) {
  if (name == nullptr || std::string_view(name) != SlowName::kName) return false;
  std::unique_lock lock(slow_mutex);
  ++slow_look_ups;
  slow_changed.notify_all();
  slow_changed.wait(lock, [] { return !slow; });
  --slow_look_ups;
  slow_changed.notify_all();
  return true;
}

}  // namespace

SlowName::SlowName() {
  const std::lock_guard lock(slow_mutex);
  slow = true;
}

SlowName::~SlowName() {
  std::unique_lock lock(slow_mutex);
  slow = false;
  slow_changed.notify_all();
  slow_changed.wait(lock, [] { return slow_look_ups == 0; });
}

int SlowName::asked() const {
  const std::lock_guard lock(slow_mutex);
  return slow_look_ups;
}

}  // namespace dsj

extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  const bool asks_nobody = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (!asks_nobody && dsj::slow_look_up(name)) return EAI_NONAME;
  static const auto system =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return system(name, service, hints, found);
}

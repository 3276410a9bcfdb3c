// A network of the test's own with IPv6 alone, as pods of an IPv6-only cluster have it: this thread, and the threads and
// processes that it starts, see an interface lo with ::1 and the addresses asked for, and no 127.0.0.1.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace dsj {

class Ipv6Only {
 public:
  explicit Ipv6Only(const std::vector<std::string>& addresses = {})
      : before_(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    if (before_ < 0 || unshare(CLONE_NEWNET) != 0) return;
    entered_ = true;
    std::string script = "ip link set lo up && ip addr del 127.0.0.1/8 dev lo";
    for (const auto& address : addresses)
      script += " && ip -6 addr add " + address + "/128 dev lo nodad";
    made_ = std::system(script.c_str()) == 0;
  }
  ~Ipv6Only() {
    if (entered_ && setns(before_, CLONE_NEWNET) != 0) std::abort();
    if (before_ >= 0) close(before_);
  }
  Ipv6Only(const Ipv6Only&) = delete;
  Ipv6Only& operator=(const Ipv6Only&) = delete;

  /// False: no such network can be made here (no right to, or no IPv6).
  bool made() const { return made_; }

 private:
  const int before_;
  bool entered_ = false, made_ = false;
};

}  // namespace dsj

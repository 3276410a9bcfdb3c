#include "cli/run/loopback.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace dsj::cli {
namespace {

class Socket {
 public:
  explicit Socket(int family) : fd_(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// Returns 0 or an errno. Returns at once, because only this machine answers.
template <typename Address>
int try_address(Address address, int family) {
  const Socket listening(family), calling(family);
  socklen_t length = sizeof address;
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  const bool carries = bind(listening.fd(), where, length) == 0 && listen(listening.fd(), 1) == 0 &&
                       getsockname(listening.fd(), where, &length) == 0 &&
                       connect(calling.fd(), where, length) == 0;
  return carries ? 0 : errno;
}

}  // namespace

Result<std::string> loopback_address() {
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int problem = try_address(four, AF_INET);
  if (problem == 0) return "127.0.0.1";
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_loopback;
  if (try_address(six, AF_INET6) == 0) return "::1";
  return fail(
      ErrorKind::Environment,
      std::string("processes of this machine do not reach each other: ") + std::strerror(problem),
      "127.0.0.1", "switch the loopback interface on: ip link set lo up");
}

}  // namespace dsj::cli

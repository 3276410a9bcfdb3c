#include "cli/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace dsj::cli {
namespace {

class Socket {
 public:
  Socket() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Status check_loopback() {
  const Socket listening, calling;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  // Only what listens on this machine answers, so the call comes back at once.
  if (bind(listening.fd(), where, length) == 0 && listen(listening.fd(), 1) == 0 &&
      getsockname(listening.fd(), where, &length) == 0 && connect(calling.fd(), where, length) == 0)
    return {};
  return fail(ErrorKind::Environment,
              std::string("processes of this machine do not reach each other: ") +
                  std::strerror(errno),
              "127.0.0.1", "switch the loopback interface on: ip link set lo up");
}

}  // namespace dsj::cli

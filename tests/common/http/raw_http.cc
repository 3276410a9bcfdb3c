#include "tests/common/http/raw_http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/check.h"

namespace dsj {

int raw_connect(int port, const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, address.c_str(), &name.sin_addr);
  DSJ_CHECK(connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0, "cannot connect");
  return fd;
}

std::string raw_read(int fd, int wait_ms) {
  std::string answer;
  char buffer[4096];
  pollfd entry{fd, POLLIN, 0};
  while (poll(&entry, 1, wait_ms) == 1) {
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got <= 0) break;
    answer.append(buffer, static_cast<size_t>(got));
  }
  return answer;
}

namespace {
std::string converse(int fd, const std::string& request, int wait_ms) {
  size_t sent = 0;
  while (sent < request.size()) {
    const ssize_t wrote = send(fd, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (wrote <= 0) break;  // the server has heard enough
    sent += static_cast<size_t>(wrote);
  }
  const std::string answer = raw_read(fd, wait_ms);
  close(fd);
  return answer;
}
}  // namespace

std::string raw_http(int port, const std::string& request, int wait_ms) {
  return converse(raw_connect(port), request, wait_ms);
}

std::string raw_http(const std::string& address, int port, const std::string& request) {
  return converse(raw_connect(port, address), request, 10'000);
}

}  // namespace dsj

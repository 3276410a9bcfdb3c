#include "tests/common/http/raw_http.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/check.h"
#include "tests/support/soon.h"

namespace dsj {

int raw_connect(int port, const std::string& address) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  DSJ_CHECK(getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) == 0,
            "not an address");
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  DSJ_CHECK(connect(fd, found->ai_addr, found->ai_addrlen) == 0, "cannot connect");
  freeaddrinfo(found);
  return fd;
}

namespace {
/// Appends what comes next; false at the end of the connection.
bool read_more(int fd, std::string& text) {
  char buffer[4096];
  pollfd entry{fd, POLLIN, 0};
  DSJ_CHECK(poll(&entry, 1, std::chrono::milliseconds(kLong).count()) == 1,
            "the connection neither ends nor answers");
  const ssize_t got = read(fd, buffer, sizeof buffer);
  if (got > 0) text.append(buffer, static_cast<size_t>(got));
  return got > 0;
}

void send_all(int fd, const std::string& request) {
  size_t sent = 0;
  while (sent < request.size()) {
    const ssize_t wrote = send(fd, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (wrote <= 0) break;  // the server has heard enough
    sent += static_cast<size_t>(wrote);
  }
}

std::string converse(int fd, const std::string& request) {
  send_all(fd, request);
  std::string answer;
  while (read_more(fd, answer)) {
  }
  close(fd);
  return answer;
}
}  // namespace

std::string raw_answer(int fd) {
  const std::string length = "Content-Length: ";
  std::string answer;
  for (;;) {
    const size_t head = answer.find("\r\n\r\n"), at = answer.find(length);
    if (head != std::string::npos) {
      DSJ_CHECK(at < head, "an answer without Content-Length");
      if (answer.size() >= head + 4 + std::stoul(answer.substr(at + length.size()))) return answer;
    }
    if (!read_more(fd, answer)) return answer;
  }
}

std::string raw_ask(int port, const std::string& request) {
  const int fd = raw_connect(port);
  send_all(fd, request);
  const std::string answer = raw_answer(fd);
  close(fd);
  return answer;
}

std::string raw_http(int port, const std::string& request) {
  return converse(raw_connect(port), request);
}

std::string raw_http(const std::string& address, int port, const std::string& request) {
  return converse(raw_connect(port, address), request);
}

}  // namespace dsj

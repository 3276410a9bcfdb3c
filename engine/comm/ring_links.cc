#include "engine/comm/ring_links.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

namespace dsj::comm {

namespace {

enum class Purpose : std::int32_t { Data, Reason };

/// What a rank sends first on each connection to the next rank.
struct Hello {
  std::array<char, 32> word{};  ///< the listener's word, from the store
  std::int32_t rank = 0;
  Purpose purpose = Purpose::Data;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

std::unexpected<Error> system_failure(const std::string& what) {
  return fail(ErrorKind::Environment, what + ": " + std::strerror(errno));
}

Result<Address> resolve(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (code != 0) {
    return fail(ErrorKind::Environment, "not an address: " + host + ": " + gai_strerror(code));
  }
  Address address;
  address.length = found->ai_addrlen;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return address;
}

struct Listening {
  Fd fd;
  std::string port;
};

Result<Listening> listen_on(const std::string& host) {
  DSJ_TRY(const Address address, resolve(host, "0"));
  Fd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return system_failure("no socket for the ring");
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  char port[NI_MAXSERV];
  if (bind(fd.get(), address.get(), address.length) != 0 || listen(fd.get(), 16) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&bound), length, nullptr, 0, port, sizeof port,
                  NI_NUMERICSERV) != 0) {
    return system_failure("cannot listen on " + host);
  }
  return Listening{std::move(fd), port};
}

/// Waits for any of the entries. Returns false if the time to join is over.
bool ready(std::span<pollfd> entries, const Rendezvous& rendezvous) {
  while (Clock::now() < rendezvous.deadline()) {
    const int count =
        poll(entries.data(), entries.size(), static_cast<int>(rendezvous.remaining().count()));
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
  }
  return false;
}

Result<Fd> connect_to(const std::string& host, const std::string& port, int rank,
                      const Rendezvous& rendezvous) {
  const std::string who =
      "rank " + std::to_string(rendezvous.name(rank)) + " at " + host + ":" + port;
  DSJ_TRY(const Address address, resolve(host, port));
  Fd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return system_failure("no socket for the ring");
  int error = connect(fd.get(), address.get(), address.length) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    socklen_t length = sizeof error;
    error = ETIMEDOUT;
    pollfd entry{fd.get(), POLLOUT, 0};
    if (ready(std::span(&entry, 1), rendezvous)) {
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
  }
  if (error != 0) {
    return fail(ErrorKind::Transient, "cannot connect to " + who + ": " + std::strerror(error));
  }
  return fd;
}

/// A connection whose first bytes are still incomplete. A stranger may never send them.
struct Caller {
  Fd fd;
  Hello hello;
  std::size_t have = 0;
};
constexpr std::size_t kCallersMost = 16;

/// Reads available bytes. Returns true if the hello is complete or the connection has ended.
bool heard(Caller& caller) {
  char* const to = reinterpret_cast<char*>(&caller.hello) + caller.have;
  const ssize_t n = recv(caller.fd.get(), to, sizeof caller.hello - caller.have, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n > 0) caller.have += static_cast<std::size_t>(n);
  return n <= 0 || caller.have == sizeof caller.hello;
}

/// Accepts until both connections of the previous rank are there. Does not wait for strangers.
Status accept_from(const Fd& listener, const Hello& expected, const Rendezvous& rendezvous,
                   RingLinks& links) {
  std::vector<Caller> callers;
  while (true) {
    std::vector<pollfd> entries = {{listener.get(), POLLIN, 0}};
    for (const Caller& caller : callers) entries.push_back({caller.fd.get(), POLLIN, 0});
    if (!ready(entries, rendezvous)) break;
    for (std::size_t i = callers.size(); i-- > 0;) {
      if (entries[i + 1].revents == 0 || !heard(callers[i])) continue;
      auto& [fd, hello, have] = callers[i];
      if (have == sizeof hello && hello.word == expected.word && hello.rank == expected.rank) {
        (hello.purpose == Purpose::Data ? links.from_prev : links.prev_reason) = std::move(fd);
      }
      callers.erase(callers.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (links.from_prev && links.prev_reason) return {};
    if (entries[0].revents == 0) continue;
    if (callers.size() == kCallersMost) callers.erase(callers.begin());
    Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) callers.push_back({.fd = std::move(fd), .hello = {}});
  }
  return fail(ErrorKind::Transient, "rank " + std::to_string(rendezvous.name(expected.rank)) +
                                        " did not connect to rank " +
                                        std::to_string(rendezvous.name(rendezvous.options().rank)) +
                                        " in time");
}

}  // namespace

Result<RingLinks> connect_ring(Rendezvous& rendezvous) {
  const int rank = rendezvous.options().rank;
  const int world = rendezvous.options().world;
  DSJ_TRY(const Listening listening, listen_on(rendezvous.local_address()));
  const std::string word = random_word();
  if (word.empty()) return system_failure("no random bytes");
  const int next = (rank + 1) % world;
  DSJ_TRY(const std::string address,
          rendezvous.value_of(
              "ring", word + " " + listening.port + " " + rendezvous.local_address(), next));
  const std::size_t second = address.find(' ', word.size() + 1);
  if (address.size() <= word.size() || second == std::string::npos) {
    return fail(ErrorKind::Internal, "not an address of the ring: " + address);
  }
  const std::string host = address.substr(second + 1);
  const std::string port = address.substr(word.size() + 1, second - word.size() - 1);
  RingLinks links;
  for (const Purpose purpose : {Purpose::Data, Purpose::Reason}) {
    Fd& fd = purpose == Purpose::Data ? links.to_next : links.next_reason;
    DSJ_TRY(fd, connect_to(host, port, next, rendezvous));
    Hello mine{.rank = rank, .purpose = purpose};
    address.copy(mine.word.data(), mine.word.size());
    if (send(fd.get(), &mine, sizeof mine, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof mine)) {
      return fail(ErrorKind::Transient,
                  "rank " + std::to_string(rendezvous.name(next)) + " closed the connection");
    }
  }
  Hello expected{.rank = (rank + world - 1) % world};
  word.copy(expected.word.data(), expected.word.size());
  DSJ_TRY_STATUS(accept_from(listening.fd, expected, rendezvous, links));
  for (const Fd* fd : {&links.to_next, &links.from_prev}) {
    const int on = 1;
    setsockopt(fd->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  return links;
}

}  // namespace dsj::comm

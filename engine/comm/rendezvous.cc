#include "engine/comm/rendezvous.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace dsj::comm {
namespace {

constexpr std::string_view kPrefix = "dsj/comm/";

/// The address from which this machine would reach host:port; empty if there is none (yet). Nothing
/// is sent: connecting a datagram socket only looks up the route.
std::string address_towards(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  std::string address;
  for (const addrinfo* entry = found; entry != nullptr && address.empty(); entry = entry->ai_next) {
    const int fd = socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    char text[NI_MAXHOST];
    if (connect(fd, entry->ai_addr, entry->ai_addrlen) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&local), length, text, sizeof text, nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      address = text;
    }
    ::close(fd);
  }
  freeaddrinfo(found);
  return address;
}

std::string store_name(const Options& options) {
  return options.master_addr + ":" + std::to_string(options.master_port);
}

/// If a server accepts the connection but does not run, c10d waits for its answer without limit. So
/// it waits on a thread of its own, which is left behind when the time is over.
c10::intrusive_ptr<c10d::Store> open_store(const Options& options) {
  c10d::TCPStoreOptions settings;
  settings.port = static_cast<std::uint16_t>(options.master_port);
  settings.isServer = options.rank == 0;
  settings.waitWorkers = false;
  settings.timeout = options.timeout;
  if (options.rank == 0 && options.store_listen_fd >= 0) {
    settings.masterListenFd = options.store_listen_fd;
  }
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  const auto promise = std::make_shared<std::promise<StorePtr>>();
  std::future<StorePtr> future = promise->get_future();
  std::thread([promise, settings, host = options.master_addr] {
    try {
      promise->set_value(c10::make_intrusive<c10d::TCPStore>(host, settings));
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  // c10d's own limit, where it works, comes first: it explains more.
  if (future.wait_for(options.timeout + std::chrono::seconds(1)) != std::future_status::ready) {
    throw TransportError("it accepts connections, but does not answer");
  }
  return future.get();
}

/// Gloo and libuv write to sockets without MSG_NOSIGNAL. Python ignores the signal by itself; we
/// must.
void ignore_sigpipe() {
  struct sigaction current {};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
    signal(SIGPIPE, SIG_IGN);
  }
}

double seconds_of(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> Rendezvous::open(const Options& options) {
  ignore_sigpipe();
  try {
    c10::intrusive_ptr<c10d::Store> store = open_store(options);
    std::string address = address_towards(options.master_addr, options.master_port);
    if (address.empty()) {
      return fail(ErrorKind::Environment, "no interface leads to " + options.master_addr);
    }
    return std::unique_ptr<Rendezvous>(
        new Rendezvous(options, std::move(store), std::move(address)));
  } catch (const std::exception& error) {
    if (options.rank == 0) {
      return fail(ErrorKind::Environment, "rank 0 cannot serve the store: " + brief(error),
                  store_name(options), "is the port in use?");
    }
    return fail(ErrorKind::Transient,
                "rank " + std::to_string(options.rank) + " did not reach rank 0's store within " +
                    format_seconds(seconds_of(options.timeout)) + ": " + brief(error),
                store_name(options), "is rank 0 running?");
  }
}

Rendezvous::Rendezvous(const Options& options, c10::intrusive_ptr<c10d::Store> store,
                       std::string address)
    : options_(options),
      deadline_(begin_ + options.timeout),
      store_(std::move(store)),
      local_address_(std::move(address)) {}

Rendezvous::~Rendezvous() = default;

c10::intrusive_ptr<c10d::Store> Rendezvous::store() const {
  return store_;
}

std::chrono::milliseconds Rendezvous::remaining() const {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
  return std::max(left, std::chrono::milliseconds(1));
}

std::string Rendezvous::missing(const std::vector<std::string>& keys) {
  std::string ranks;
  int count = 0;
  for (std::size_t rank = 0; rank < keys.size(); ++rank) {
    if (store_->check({keys[rank]})) continue;
    ranks += (count++ == 0 ? "" : ", ") + std::to_string(rank);
  }
  return (count == 1 ? "rank " : "ranks ") + ranks;
}

Status Rendezvous::wait_for_all(const std::string& what, const std::vector<std::string>& keys) {
  try {
    store_->wait(keys, remaining());
    return {};
  } catch (const std::exception&) {
    if (Clock::now() < deadline_) throw;
    const std::chrono::duration<double> waited = Clock::now() - begin_;
    return fail(ErrorKind::Transient,
                "rank " + std::to_string(options_.rank) + ": " + missing(keys) +
                    " did not join within " + format_seconds(waited.count()) + " (" + what + ")",
                store_name(options_));
  }
}

std::unexpected<Error> Rendezvous::lost(const std::string& what, const std::exception& error) {
  return fail(ErrorKind::Transient,
              "rank " + std::to_string(options_.rank) + " lost rank 0's store while joining (" +
                  what + "): " + brief(error),
              store_name(options_));
}

Result<std::vector<std::string>> Rendezvous::exchange(const std::string& key,
                                                      const std::string& mine) {
  const std::vector<std::string> keys = keys_of(key);
  try {
    put(keys[static_cast<std::size_t>(options_.rank)], mine);
    DSJ_TRY_STATUS(wait_for_all(key, keys));
    std::vector<std::string> values;
    for (const std::string& name : keys) {
      const std::vector<std::uint8_t> value = store_->get(name);
      values.emplace_back(value.begin(), value.end());
    }
    return values;
  } catch (const std::exception& error) {
    return lost(key, error);
  }
}

Status Rendezvous::finish() {
  DSJ_TRY_STATUS(exchange("ready", ""));
  const std::vector<std::string> keys = keys_of("finished");
  try {
    put(keys[static_cast<std::size_t>(options_.rank)], "");
    // The others read nothing more: only rank 0, the server, must wait.
    if (options_.rank == 0) return wait_for_all("finished", keys);
    return {};
  } catch (const std::exception& error) {
    return lost("finished", error);
  }
}

void Rendezvous::put(const std::string& key, const std::string& value) {
  store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
}

std::vector<std::string> Rendezvous::keys_of(const std::string& key) const {
  std::vector<std::string> keys;
  for (int rank = 0; rank < options_.world; ++rank) {
    keys.push_back(std::string(kPrefix) + key + "/" + std::to_string(rank));
  }
  return keys;
}

}  // namespace dsj::comm

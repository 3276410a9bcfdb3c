#include "engine/comm/rendezvous.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <numeric>
#include <span>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "common/log.h"
#include "common/net_address.h"
#include "job/flight_log.h"
#include "job/rank_runs.h"

namespace dsj::comm {
namespace {

constexpr std::string_view kPrefix = "dsj/comm/";

/// The address from which this machine would reach host:port; empty if there is none (yet). Sends
/// nothing: connecting a datagram socket only looks up the route.
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
  return host_port_text(options.master_addr, options.master_port);
}

/// Stops this thread from asking name servers. c10d looks up a name for every address that it
/// connects to, only for its log. A name server that does not answer, or limits its rate, delays
/// the join by ten seconds.
void ask_no_name_server() {
  if (res_init() != 0) return;
  _res.nscount = 0;
  _res.options |= RES_NORELOAD;
}

/// If a server accepts the connection but does not answer, c10d waits without limit. So it waits on
/// a thread of its own, which is abandoned after the timeout.
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
    if (is_ip_address(host)) ask_no_name_server();
    try {
      promise->set_value(c10::make_intrusive<c10d::TCPStore>(host, settings));
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  // c10d's own timeout, if it works, comes first, because its message explains more.
  if (future.wait_for(options.timeout + std::chrono::seconds(1)) != std::future_status::ready) {
    throw TransportError("it accepts connections, but does not answer");
  }
  return future.get();
}

/// Gloo and libuv write to sockets without MSG_NOSIGNAL. Python ignores the signal; this process
/// must do so itself.
void ignore_sigpipe() {
  struct sigaction current {};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
    signal(SIGPIPE, SIG_IGN);
  }
}

/// A number for the group that joins with `key`, the same on all its ranks: FNV-1a, never 0.
std::uint64_t id_of(std::uint64_t outer, const std::string& key) {
  std::uint64_t sum = 14695981039346656037U ^ outer;
  for (const char letter : key) sum = (sum ^ static_cast<unsigned char>(letter)) * 1099511628211U;
  return (sum >> 1) | 1;
}

double seconds_of(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

std::string pack(const std::vector<std::string>& values) {
  std::string packed;
  for (const std::string& value : values) packed += std::to_string(value.size()) + " " + value;
  return packed;
}

std::vector<std::string> unpack(const std::string& packed) {
  std::vector<std::string> values;
  for (std::size_t at = 0; at < packed.size();) {
    const std::size_t space = packed.find(' ', at);
    const std::size_t length = std::stoul(packed.substr(at, space - at));
    values.push_back(packed.substr(space + 1, length));
    at = space + 1 + length;
  }
  return values;
}

std::string first_problem(const std::vector<std::string>& texts) {
  const auto found = std::ranges::find_if(texts, [](const auto& text) { return !text.empty(); });
  return found == texts.end() ? "" : *found;
}

Result<std::unique_ptr<Rendezvous>> Rendezvous::open(const Options& options) {
  ignore_sigpipe();
  try {
    c10::intrusive_ptr<c10d::Store> store = open_store(options);
    std::string address = address_towards(options.master_addr, options.master_port);
    if (address.empty()) {
      return fail(ErrorKind::Environment, "no interface leads to " + options.master_addr);
    }
    return std::make_unique<Rendezvous>(options, std::move(store), std::move(address));
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
                       std::string address, std::vector<int> names)
    : options_(options),
      deadline_(begin_ + options.timeout),
      store_(std::move(store)),
      local_address_(std::move(address)),
      names_(std::move(names)),
      flight_(std::shared_ptr<void>(), options.flight) {}  // the world's log outlives all groups

Rendezvous::~Rendezvous() = default;

int Rendezvous::name(int rank) const {
  return names_.empty() ? rank : names_[static_cast<std::size_t>(rank)];
}

std::unique_ptr<Rendezvous> Rendezvous::again() const {
  auto same = std::make_unique<Rendezvous>(options_, store_, local_address_, names_);
  same->flight_ = flight_;
  same->id_ = id_;
  same->title_ = title_;
  return same;
}

std::unique_ptr<Rendezvous> Rendezvous::part(const std::string& key,
                                             const std::vector<int>& members,
                                             const std::string& name, bool level) const {
  Options options = options_;
  options.world = static_cast<int>(members.size());
  options.rank = static_cast<int>(std::ranges::find(members, options_.rank) - members.begin());
  if (options.backend == "hierarchical") options.backend = "auto";  // the part may be on one host
  std::vector<int> names;
  for (const int rank : members) names.push_back(this->name(rank));
  auto part = std::make_unique<Rendezvous>(
      options, c10::make_intrusive<c10d::PrefixStore>(key, store_), local_address_, names);
  part->id_ = id_of(id_, key);
  part->title_ = title_.empty() ? name : name + " of " + title_;
  part->flight_ = nullptr;
  if (!flight_) return part;
  part->flight_ = flight_->group({.id = part->id_,
                                  .name = part->title_,
                                  .members = text_of_ranks(names),
                                  .within = level ? std::optional(id_) : std::nullopt});
  if (!part->flight_ &&
      this->name(options_.rank) == 0) {  // one warning for all ranks: they make as many groups
    log::warn("the flight log holds " + std::to_string(FlightLog::kGroups) + " groups: group " +
              part->title_ + " is not in it, and a report of a stall will not name it");
  }
  return part;
}

c10::intrusive_ptr<c10d::Store> Rendezvous::store() const {
  return store_;
}

std::chrono::milliseconds Rendezvous::remaining() const {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
  return std::max(left, std::chrono::milliseconds(1));
}

namespace {

std::string name_of_rank(const std::string& key, int rank) {
  return std::string(kPrefix) + key + "/" + std::to_string(rank);
}

std::string name_of_answer(const std::string& key) {
  return std::string(kPrefix) + key + "/answer";
}

std::vector<std::string> names_of(const std::string& key, std::span<const int> ranks) {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(name_of_rank(key, rank));
  return names;
}

std::vector<int> all_ranks(int world) {
  std::vector<int> ranks(static_cast<std::size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Finds the ranks that have not put `key`. Checks a half of them at once, and splits it if
/// incomplete. Stops after kNamedMax + 1.
void find_missing(c10d::Store& store, const std::string& key, std::span<const int> ranks,
                  std::vector<int>& found) {
  if (ranks.empty() || found.size() > Rendezvous::kNamedMax || store.check(names_of(key, ranks)))
    return;
  if (ranks.size() == 1) {
    found.push_back(ranks.front());
    return;
  }
  find_missing(store, key, ranks.first(ranks.size() / 2), found);
  find_missing(store, key, ranks.subspan(ranks.size() / 2), found);
}

}  // namespace

std::string Rendezvous::missing(const std::string& key, const std::vector<int>& ranks) {
  std::vector<int> found;
  find_missing(*store_, key, ranks, found);
  if (found.empty()) return {};
  std::string text = found.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(found.size(), kNamedMax); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(name(found[i]));
  return found.size() > kNamedMax ? text + " and others" : text;
}

Status Rendezvous::wait_for(const std::string& key, const std::vector<int>& ranks) {
  return wait_for(key, names_of(key, ranks), ranks);
}

Status Rendezvous::wait_for(const std::string& key, const std::vector<std::string>& names,
                            const std::vector<int>& ranks) {
  try {
    store_->wait(names, remaining());
    return {};
  } catch (const std::exception&) {
    if (Clock::now() < deadline_) throw;
    const std::chrono::duration<double> waited = Clock::now() - begin_;
    const std::string who = missing(key, ranks);
    return fail(ErrorKind::Transient,
                "rank " + std::to_string(name(options_.rank)) + ": " +
                    (who.empty() ? "rank " + std::to_string(name(0)) + " did not answer"
                                 : who + " did not join") +
                    " within " + format_seconds(waited.count()) + " (" + key + ")",
                store_name(options_));
  }
}

std::unexpected<Error> Rendezvous::lost(const std::string& what, const std::exception& error) {
  return fail(ErrorKind::Transient,
              "rank " + std::to_string(name(options_.rank)) +
                  " lost rank 0's store while joining (" + what + "): " + brief(error),
              store_name(options_));
}

std::vector<std::string> Rendezvous::collect(const std::string& key) {
  std::vector<std::string> values;
  for (const auto& value : store_->multiGet(names_of(key, all_ranks(options_.world))))
    values.emplace_back(value.begin(), value.end());
  return values;
}

Result<std::string> Rendezvous::settle(const std::string& key, const std::string& mine,
                                       const Decide& decide) {
  const std::vector<int> ranks = all_ranks(options_.world);
  const std::string answer = name_of_answer(key);
  try {
    put(name_of_rank(key, options_.rank), mine);
    if (options_.rank != 0) {
      DSJ_TRY_STATUS(wait_for(key, {answer}, ranks));
      return get(answer);
    }
    DSJ_TRY_STATUS(wait_for(key, ranks));
    std::string decided = decide(collect(key));
    put(answer, decided);
    return decided;
  } catch (const std::exception& error) {
    return lost(key, error);
  }
}

Result<std::string> Rendezvous::deal(const std::string& key, const std::string& mine,
                                     const Deal& decide) {
  const std::string answers = key + "/for";
  try {
    put(name_of_rank(key, options_.rank), mine);
    if (options_.rank == 0) {
      const std::vector<int> ranks = all_ranks(options_.world);
      DSJ_TRY_STATUS(wait_for(key, ranks));
      std::vector<std::vector<std::uint8_t>> values;
      for (const std::string& text : decide(collect(key)))
        values.emplace_back(text.begin(), text.end());
      store_->multiSet(names_of(answers, ranks), values);
    } else {
      DSJ_TRY_STATUS(
          wait_for(key, {name_of_rank(answers, options_.rank)}, all_ranks(options_.world)));
    }
    return get(name_of_rank(answers, options_.rank));
  } catch (const std::exception& error) {
    return lost(key, error);
  }
}

Result<std::string> Rendezvous::value_of(const std::string& key, const std::string& mine,
                                         int from) {
  try {
    put(name_of_rank(key, options_.rank), mine);
    DSJ_TRY_STATUS(wait_for(key, {from}));
    return get(name_of_rank(key, from));
  } catch (const std::exception& error) {
    return lost(key, error);
  }
}

Result<std::string> Rendezvous::value_of_first(const std::string& key, const std::string& mine) {
  try {
    if (options_.rank == 0) {
      put(name_of_rank(key, 0), mine);
      return mine;
    }
    DSJ_TRY_STATUS(wait_for(key, {0}));
    return get(name_of_rank(key, 0));
  } catch (const std::exception& error) {
    return lost(key, error);
  }
}

Result<std::vector<std::string>> Rendezvous::values_of_all(const std::string& key,
                                                           const std::string& mine) {
  DSJ_TRY(const std::string packed, settle(key, mine, pack));
  return unpack(packed);
}

Status Rendezvous::finish() {
  DSJ_TRY_STATUS(settle("ready", "", [](const auto&) { return std::string(); }));
  try {
    // The other ranks read nothing more: only rank 0, the server, must wait.
    if (options_.rank == 0) {
      std::vector<int> others = all_ranks(options_.world);
      others.erase(others.begin());
      return wait_for("finished", others);
    }
    put(name_of_rank("finished", options_.rank), "");
    return {};
  } catch (const std::exception& error) {
    return lost("finished", error);
  }
}

void Rendezvous::put(const std::string& name, const std::string& value) {
  store_->set(name, std::vector<std::uint8_t>(value.begin(), value.end()));
}

std::string Rendezvous::get(const std::string& name) {
  const std::vector<std::uint8_t> value = store_->get(name);
  return {value.begin(), value.end()};
}

}  // namespace dsj::comm

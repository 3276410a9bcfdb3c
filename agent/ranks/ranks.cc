#include "agent/ranks/ranks.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <utility>

#include "common/log.h"
#include "common/startup_trace.h"
#include "job/flight_log.h"

namespace dsj::agent {
namespace {

Error os_error(const std::string& what, const std::string& where) {
  return {ErrorKind::Environment, what + ": " + std::strerror(errno), where};
}

std::string header_line(const RankStart& start) {
  char when[32] = "";
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return std::string("==== ") + when + " attempt " + std::to_string(start.attempt) + ", rank " +
         std::to_string(start.place.rank) + " of " + std::to_string(start.place.world_size) +
         " ====\n";
}

/// Returns 0 or an errno.
int append_line(const std::string& path, const std::string& line) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return errno;
  const ssize_t wrote = write(fd, line.data(), line.size());
  const int problem = wrote < 0 ? errno : wrote < std::ssize(line) ? ENOSPC : 0;
  close(fd);
  return problem;
}

/// Memory that a rank writes and this agent reads. It is sealed, so the rank cannot shrink it. -1
/// if the kernel does not support it; then the rank has no flight log.
int flight_memory() {
  const int fd = memfd_create("dsj-flight", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(FlightLog::kBytes)) == 0) {
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    return fd;
  }
  log::warn(std::string("no memory for a rank's flight log: ") + std::strerror(errno));
  if (fd >= 0) close(fd);
  return -1;
}

/// Reads /proc: "PID (NAME) STATE ...". NAME may contain any characters.
bool is_stopped(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name = line.rfind(')');
  return name != std::string::npos && line.substr(name).starts_with(") T");
}

}  // namespace

/// Begins an attempt's part of a rank's log. Returns false if the disk is full and the file does
/// not exist: then the rank uses this process's output.
Result<bool> PosixRanks::begin_log(const RankStart& start) {
  const int problem = append_line(start.log_file, header_line(start));
  if (problem == 0) return true;
  if (problem != ENOSPC && problem != EDQUOT) {
    errno = problem;
    return std::unexpected(os_error("cannot write to the log", start.log_file));
  }
  if (!std::exchange(disk_full_told_, true))
    log::warn("the disk has no room for " + start.log_file +
              ": a part of its rank's output is lost. The job continues");
  return access(start.log_file.c_str(), W_OK) == 0;
}

Result<RankProcess> PosixRanks::start(const RankStart& start) {
  RankProcess rank{.log_file = start.log_file};
  DSJ_TRY(const bool logs, begin_log(start));
  rank.log_from = size_of(start.log_file);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return std::unexpected(os_error("cannot make the event pipe", start.command[0]));
  }
  // Only our end: a rank whose agent is slow must block, not lose events.
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  RankPlace place = start.place;
  place.event_fd = ends[1];
  if (start.flies) place.flight_fd = rank.flight_fd = flight_memory();
  place.startup_trace = startup::recorder().for_child();
  SpawnSpec spec{.command = start.command,
                 .environment = rank_environment(inherited_environment(), place),
                 .log_file = logs ? start.log_file : "",
                 .keep_fds = {ends[1]}};
  if (place.flight_fd >= 0) spec.keep_fds.push_back(place.flight_fd);
  if (place.rank == 0 && place.store_fd >= 0) spec.keep_fds.push_back(place.store_fd);
  const auto pid = spawn(spec);
  close(ends[1]);
  if (!pid) {
    close(ends[0]);
    if (rank.flight_fd >= 0) close(rank.flight_fd);
    return std::unexpected(pid.error());
  }
  rank.pid = *pid;
  rank.event_fd = ends[0];
  if (logs) rotation_.watch(start.log_file);
  return rank;
}

void PosixRanks::signal(const RankProcess& rank, int signal) {
  signal_group(rank.pid, signal);
}

std::string PosixRanks::read_events(const RankProcess& rank) {
  std::string bytes;
  char buffer[64 * 1024];
  // Bounded per call, so that a rank that floods its pipe does not keep the agent from the others.
  while (bytes.size() < (1 << 20)) {
    const ssize_t got = read(rank.event_fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    bytes.append(buffer, static_cast<size_t>(got));
  }
  return bytes;
}

std::optional<ChildExit> PosixRanks::poll_exit(const RankProcess& rank) {
  return reap(rank.pid);
}

void PosixRanks::forget(const RankProcess& rank) {
  rotation_.forget(rank.log_file);
  close(rank.event_fd);
  if (rank.flight_fd >= 0) close(rank.flight_fd);
}

RankSight PosixRanks::look(const RankProcess& rank) {
  RankSight sight{.stopped = is_stopped(rank.pid)};
  if (rank.flight_fd < 0) return sight;
  sight.flight.resize(FlightLog::kBytes);
  const ssize_t got = pread(rank.flight_fd, sight.flight.data(), sight.flight.size(), 0);
  sight.flight.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return sight;
}

std::string PosixRanks::last_words(const RankProcess& rank, size_t bytes_max) {
  return tail_of(rank.log_file, rank.log_from, bytes_max);
}

Result<StoreSocket> PosixRanks::open_store(const std::string& address) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  if (getaddrinfo(address.c_str(), "0", &hints, &found) != 0)
    return bad_input("not an IP address", address);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> at(found, freeaddrinfo);
  StoreSocket store;
  store.fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (store.fd < 0) return std::unexpected(os_error("cannot make the store's socket", address));
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  char port[NI_MAXSERV];
  if (bind(store.fd, at->ai_addr, at->ai_addrlen) != 0 || listen(store.fd, 1024) != 0 ||
      getsockname(store.fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, port, sizeof port,
                  NI_NUMERICSERV) != 0) {
    const Error problem = os_error("cannot listen for the ranks' store", address);
    close(store.fd);
    return std::unexpected(problem);
  }
  store.port = std::atoi(port);
  return store;
}

void PosixRanks::close_store(const StoreSocket& store) {
  if (store.fd >= 0) close(store.fd);
}

}  // namespace dsj::agent

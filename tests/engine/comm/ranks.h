// Ranks as forked processes, for tests and benches.
#pragma once

#include <ATen/Parallel.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/comm/collectives.h"

namespace dsj::comm::testing_support {

/// Fails the rank it is called in.
inline void require(bool condition, const std::string& text) {
  if (!condition) throw std::runtime_error(text);
}

/// A timeout that only a hang reaches: an error that comes earlier says another reason.
inline constexpr std::chrono::seconds kNever{300};

/// A socket that listens on a free port of the loopback interface, as the agent would make it.
struct Listener {
  int fd = -1;
  int port = 0;
  Listener() : fd(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    require(bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(fd, 64) == 0 &&
                getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0,
            "no port to listen on");
    port = ntohs(address.sin_port);
  }
  ~Listener() { ::close(fd); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
};

/// Fails the rank with the error.
inline std::unique_ptr<Collectives> joined(const Options& options) {
  auto result = make_collectives(options);
  if (!result) throw std::runtime_error(result.error().to_string());
  return std::move(*result);
}

/// Groups that one set of ranks may join: each has a store of its own.
inline constexpr int kGroups = 3;

/// What a rank gets: who it is, and the options to join with (`group` picks the store).
struct Seat {
  int rank = 0;
  int world = 1;
  const Listener* listeners = nullptr;

  Options options(const std::string& backend, std::chrono::milliseconds timeout,
                  int group = 0) const {
    const Listener& listener = listeners[group];
    return {.rank = rank,
            .world = world,
            .master_port = listener.port,
            .store_listen_fd = rank == 0 ? listener.fd : -1,
            .timeout = timeout,
            .backend = backend,
            // As if each two ranks were a host.
            .host = backend == "hierarchical" ? "host" + std::to_string(rank / 2) : ""};
  }
  std::unique_ptr<Collectives> join(const std::string& backend, std::chrono::milliseconds timeout,
                                    int group = 0) const {
    return joined(options(backend, timeout, group));
  }
};

/// Runs body in `world` processes; returns per rank the text it failed with ("" = well). Ranks in
/// `lost` may hang or die: they are not waited for, and are killed once all others have ended.
inline std::vector<std::string> run_ranks(int world, const std::function<void(const Seat&)>& body,
                                          const std::set<int>& lost = {}) {
  const Listener listeners[kGroups];
  std::vector<pid_t> pids;
  std::vector<int> pipes;
  for (int rank = 0; rank < world; ++rank) {
    int ends[2];
    require(pipe(ends) == 0, "no pipe");
    const pid_t pid = fork();
    require(pid >= 0, "no process");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      alarm(600);  // a hung rank ends the test instead of the machine's patience
      if (rank != 0) {
        for (const Listener& listener : listeners) ::close(listener.fd);
      }
      at::set_num_threads(1);  // the parent's pool of threads did not come along
      std::string text;
      try {
        body({rank, world, listeners});
      } catch (const std::exception& error) {
        text = error.what();
        if (text.empty()) text = "an exception without text";
      }
      text += '\n';
      const bool told = write(ends[1], text.data(), text.size()) > 0;
      _exit(told ? 0 : 1);
    }
    ::close(ends[1]);
    pids.push_back(pid);
    pipes.push_back(ends[0]);
  }
  std::vector<std::string> texts(static_cast<std::size_t>(world));
  const auto collect = [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    char buffer[4096];
    ssize_t n = 0;
    while ((n = read(pipes[index], buffer, sizeof buffer)) > 0) {
      texts[index].append(buffer, static_cast<std::size_t>(n));
    }
    ::close(pipes[index]);
    int status = 0;
    waitpid(pids[index], &status, 0);
    if (texts[index].empty()) {
      texts[index] = WIFSIGNALED(status)
                         ? "died of signal " + std::to_string(WTERMSIG(status)) + "\n"
                         : "died without a word\n";
    }
    texts[index].pop_back();
  };
  for (int rank = 0; rank < world; ++rank) {
    if (!lost.contains(rank)) collect(rank);
  }
  for (const int rank : lost) {
    kill(pids[static_cast<std::size_t>(rank)], SIGKILL);
    collect(rank);
  }
  return texts;
}

}  // namespace dsj::comm::testing_support

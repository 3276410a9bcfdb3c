// The port to rank processes: start, signal, read events, observe the end. PosixRanks runs real
// processes; tests/agent/ranks/fake_ranks.h is the fake.
// Tested by: tests/run/fake/run_test.cc
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/ranks/log_rotation.h"
#include "agent/ranks/rank_env.h"
#include "agent/ranks/spawn.h"
#include "agent/stacks/stack_taker.h"
#include "common/result.h"

namespace dsj::agent {

struct RankStart {
  std::vector<std::string> command;
  RankPlace place;       ///< start() sets event_fd and flight_fd
  bool flies = true;     ///< it keeps a flight log (job/flight_log.h)
  int64_t attempt = 0;   ///< for the header line in the log
  std::string log_file;  ///< stdout and stderr, appended
};

struct RankProcess {
  pid_t pid = -1;
  int event_fd = -1;   ///< non-blocking; -1 in fakes
  int flight_fd = -1;  ///< its flight log; -1 if it has none
  std::string log_file;
  int64_t log_from = 0;  ///< where this attempt begins, until the log is truncated
};

/// What can be observed of a rank from outside, even if it hangs.
struct RankSight {
  std::string flight;    ///< content of its flight log; empty if none
  bool stopped = false;  ///< its process is stopped, for example by SIGSTOP
};

/// A listening socket for the ranks' store.
struct StoreSocket {
  int fd = -1;
  int port = 0;
};

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual Result<RankProcess> start(const RankStart& start) = 0;
  virtual void signal(const RankProcess& rank, int signal) = 0;
  /// The bytes from the event pipe since the last call.
  virtual std::string read_events(const RankProcess& rank) = 0;
  /// Its end, returned once. The event pipe stays readable until forget().
  virtual std::optional<ChildExit> poll_exit(const RankProcess& rank) = 0;
  virtual void forget(const RankProcess& rank) = 0;
  /// Valid until forget(), also after the rank's end.
  virtual RankSight look(const RankProcess& rank) = 0;
  /// Begins to take the stacks of these processes. Returns false if an earlier request is still
  /// running.
  virtual bool begin_stacks(std::vector<RankPid> ranks) = 0;
  /// The result of begin_stacks(), returned once; nullopt if it is not ready or nothing was
  /// requested.
  virtual std::optional<std::vector<RankStacks>> taken_stacks() = 0;
  virtual std::string last_words(const RankProcess& rank, size_t bytes_max) = 0;
  virtual Result<StoreSocket> open_store(const std::string& address) = 0;
  virtual void close_store(const StoreSocket& store) = 0;
};

class PosixRanks final : public Ranks {
 public:
  /// `log_bytes_max` limits a rank's log (log_rotation.h). A disk without room for logs causes one
  /// warning and ends no rank.
  explicit PosixRanks(int64_t log_bytes_max = kLogBytesMaxDefault) : rotation_(log_bytes_max) {}
  Result<RankProcess> start(const RankStart& start) override;
  void signal(const RankProcess& rank, int signal) override;
  std::string read_events(const RankProcess& rank) override;
  std::optional<ChildExit> poll_exit(const RankProcess& rank) override;
  void forget(const RankProcess& rank) override;
  RankSight look(const RankProcess& rank) override;
  bool begin_stacks(std::vector<RankPid> ranks) override { return taker_.start(std::move(ranks)); }
  std::optional<std::vector<RankStacks>> taken_stacks() override { return taker_.take(); }
  std::string last_words(const RankProcess& rank, size_t bytes_max) override;
  Result<StoreSocket> open_store(const std::string& address) override;
  void close_store(const StoreSocket& store) override;

 private:
  Result<bool> begin_log(const RankStart& start);
  StackTaker taker_;
  LogRotation rotation_;
  bool disk_full_told_ = false;
};

}  // namespace dsj::agent

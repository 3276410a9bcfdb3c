// The ports of `dsj run` to this machine: agent processes, stop requests, and time.
// tests/cli/fake_agents.h has the fakes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/ranks/spawn.h"
#include "common/result.h"

namespace dsj::cli {

class Agents {
 public:
  virtual ~Agents() = default;
  /// Starts a worker's agent. The agent of worker 0 writes its reports to a new pipe.
  virtual Status start(int worker, int64_t incarnation) = 0;
  virtual bool runs(int worker) const = 0;
  /// The exit of an agent that ran; returned once.
  virtual std::optional<agent::ChildExit> take_exit(int worker) = 0;
  /// Sends SIGTERM to an agent: its ranks save and stop.
  virtual void ask_to_stop(int worker) = 0;
  /// Kills an agent with its process group.
  virtual void kill(int worker) = 0;
  /// The reports of worker 0's agent since the last call; the last line may be incomplete.
  virtual std::string read_reports() = 0;
  /// The end of an agent's log.
  virtual std::string last_words(int worker) const = 0;
  /// How often the user asked to stop (Ctrl-C, SIGTERM, SIGHUP) since the last call.
  virtual int take_stop_requests() = 0;
  /// Whether the user asked for the stacks of all threads (Ctrl-\, SIGQUIT) since the last call.
  virtual bool take_stacks_request() = 0;
  /// Requests the stacks of all ranks from worker 0's agent.
  virtual void ask_for_stacks() = 0;
  /// Waits until something may have happened, for at most 200 ms.
  virtual void wait() = 0;
  /// Reaps dead processes that were reparented to this one: ranks of an agent that died.
  virtual void bury_strays() = 0;
  /// Kills descendants that outlived their parent and were reparented to this process.
  virtual void kill_strays() = 0;
};

class RunClock {
 public:
  using Time = std::chrono::milliseconds;
  virtual ~RunClock() = default;
  virtual Time now() const = 0;                 ///< monotonic
  virtual std::string time_of_day() const = 0;  ///< RFC 3339
};

class SystemRunClock final : public RunClock {
 public:
  Time now() const override;
  std::string time_of_day() const override;
};

struct LocalAgentsOptions {
  int workers = 1;
  std::string program;
  std::string config_file;  ///< for --config
  std::string logs_dir;
  /// Set for agents and ranks, in addition to this process's environment.
  std::vector<std::pair<std::string, std::string>> environment;
  int lock_fd = -1;  ///< the agents inherit it
};

/// Path of the file with the output of a worker's agent.
std::string agent_log(const std::string& logs_dir, int worker);

class LocalAgents final : public Agents {
 public:
  /// Takes over this process's signals and orphans; call it in the main thread. Errors:
  /// Environment if it cannot.
  static Result<LocalAgents> open(LocalAgentsOptions options);
  LocalAgents(LocalAgents&& other) noexcept;
  ~LocalAgents() override;

  Status start(int worker, int64_t incarnation) override;
  bool runs(int worker) const override { return pids_[worker] > 0; }
  std::optional<agent::ChildExit> take_exit(int worker) override;
  void ask_to_stop(int worker) override;
  void kill(int worker) override;
  std::string read_reports() override;
  std::string last_words(int worker) const override;
  int take_stop_requests() override;
  bool take_stacks_request() override;
  void ask_for_stacks() override;
  void wait() override;
  void bury_strays() override;
  void kill_strays() override;

 private:
  LocalAgents(LocalAgentsOptions options, int signal_fd);

  LocalAgentsOptions options_;
  std::vector<pid_t> pids_;  ///< -1 if not running
  int signal_fd_ = -1, report_fd_ = -1;
  int stop_requests_ = 0;
  bool stacks_requested_ = false;
  void take_signals();
};

}  // namespace dsj::cli

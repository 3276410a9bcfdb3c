// One agent. It carries out, through ports, what session.h (worker 0 only) and worker.h decide. A
// loop (loop.h, pod_loop.h) calls turn() whenever an event arrives or something is due; no call
// blocks. For one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/attempt_files.h"
#include "agent/config.h"
#include "agent/gang/session.h"
#include "agent/gang/worker.h"
#include "agent/links/link_meter.h"
#include "agent/ranks/line_splitter.h"
#include "agent/ranks/ranks.h"
#include "agent/status/metrics_file.h"
#include "agent/status/reports.h"
#include "agent/wire/transport.h"
#include "common/files/files.h"

namespace dsj::agent {

struct AgentPorts {
  Ranks& ranks;
  Files& files;
  Reports& reports;
  BeatServer* server = nullptr;  ///< for worker 0, if there are other workers
  BeatClient* client = nullptr;  ///< for every other worker
  LinkMeter* links = nullptr;    ///< if links between nodes are measured
};

class Agent {
 public:
  /// Worker 0 reads the attempt file and opens metrics.jsonl. An error ends the job.
  static Result<Agent> make(const AgentConfig& config, int worker, int64_t incarnation,
                            AgentPorts ports, Time now);
  Agent(Agent&&) = default;

  /// Processes what arrived and does what is due.
  void turn(Time now);
  /// Saves and stops the whole job.
  void stop(Time now);
  /// Sets the operator's account of restarts, which includes all attempts up to `attempt`.
  void account(int64_t attempt, const RestartBudget& budget, Time now);
  /// The number in the attempt file if it is above this agent's own: another agent 0 runs the job.
  /// Reads the output volume.
  std::optional<int64_t> newer_attempt() const;
  /// Changes how long ranks may take to save, and may be without progress.
  void wait_for(Time grace, Time stall);
  /// Requests the stacks of all ranks: every agent writes those of its own ranks to its log. Only
  /// worker 0's agent forwards the request. `request` is in milliseconds since 1970.
  void want_stacks(int64_t request, Time now);
  /// This worker's pod is being removed: the whole job saves, then only this agent leaves.
  void depart(Time now);
  /// Ends this worker's ranks immediately and leaves, because another agent replaced this one.
  void abandon(const std::string& why, Time now);
  /// The latest time for the next turn().
  Time next_turn(Time now) const;
  /// Before this time, a beat alone does not need a turn.
  Time hears_from() const { return turned_ + turn_pause(config_.replicas); }
  /// Event pipes of running ranks, for the loop to poll for reading.
  std::vector<int> event_fds() const;
  /// The exit code, once this agent's work is done and none of its ranks is left.
  std::optional<int> exit_code() const { return exit_code_; }

  struct RankLog {
    int rank;
    pid_t pid;
    bool running;
    std::string file;
    int64_t from;  ///< byte where its attempt begins
  };
  /// The logs of the ranks that this worker started last, running or not.
  std::vector<RankLog> rank_logs() const;
  const Worker& worker() const { return worker_; }
  /// How the job ended. Null until then, and always null except on worker 0.
  const Outcome* outcome() const {
    return session_ && session_->phase == Phase::Finished ? &session_->outcome : nullptr;
  }

 private:
  struct LocalRank {
    RankProcess process;
    LineSplitter lines;
    bool running = false;
    int rank = 0;
    int64_t garbage = 0;
    RankSight last_sight;  ///< set when it has ended
  };

  Agent(const AgentConfig& config, int worker, int64_t incarnation, AgentPorts ports, Time now);
  void decide(const Event& event, Time now);
  void react(const WorkerEvent& event, Time now);
  void carry_out(const Command& command, Time now);
  void publish_attempt(const PublishAttempt& publish, Time now);
  void launch(const Directive& directive, Time now);
  bool gives_ds_config() const;
  std::string ds_config_path() const;
  Status write_job_file(const Directive& directive, const std::string& path);
  void take_look(const TakeLook& command, Time now);
  void take_stacks(Time now);
  void take_paces(Time now);
  void take_link(Time now);
  void watch_ranks(Time now);
  void read_events(int local, bool to_the_end, Time now);
  void take_event(int local, const report::ReadEvent& read, Time now);
  void take_rank_zero(const report::ReadEvent& read, Time now);
  void beat(Time now);
  void hear(Time now);
  void leave(Time now);
  void tell_metrics_problem(const Status& status);

  AgentConfig config_;
  AgentPorts ports_;
  AttemptFiles attempts_;
  Worker worker_;
  std::optional<Session> session_;
  std::optional<MetricsFile> metrics_;
  std::vector<LocalRank> ranks_;
  StoreSocket store_;
  int64_t stacks_wanted_ = 0, stacks_begun_ = 0;  ///< requests; 0 if none
  int64_t published_ = 0;  ///< the newest attempt that this agent wrote into the attempt file
  int threads_ = 1;
  int64_t sequence_ = 0;
  Time turned_{0};
  Time next_beat_{0}, beat_sent_{0}, next_paces_{0};
  int unanswered_ = 0;  ///< consecutive beats
  bool beat_wanted_ = true, beat_under_way_ = false, last_beat_sent_ = false;
  bool metrics_failed_ = false;
  nlohmann::json cut_rows_;  ///< for the line of the attempt's first step; null if none
  bool start_traced_ = false, ends_traced_ = false;  ///< common/startup_trace.h
  std::string last_beat_problem_;
  Time leaving_since_{-1};
  std::optional<int> exit_code_;
};

}  // namespace dsj::agent

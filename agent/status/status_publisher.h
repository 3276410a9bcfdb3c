// Writes agent 0's part of its job's status (status_book.h) by server-side apply, on its own
// thread, through outages of any length: training never waits for it. Each write is based on the
// version of the previous write; the job is read only before the first write and after another
// writer changed it. An agent whose attempt is obsolete stops writing and reports it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "agent/status/reports.h"
#include "agent/status/status_book.h"
#include "kube/client.h"

namespace dsj::agent {

/// The resource deepspeedjobs.
kube::Resource job_resource();
/// "2026-01-31T12:00:00Z".
std::string rfc3339(std::chrono::system_clock::time_point time);

/// The field manager for what agent 0 writes once per attempt.
inline constexpr char kOnceManager[] = "dsj-agent-config";

struct JobName {
  std::string ns, name, uid;
};

class StatusPublisher final : public Reports {
 public:
  StatusPublisher(kube::Client& client, kube::Clock& clock, JobName job, int world_size,
                  StatusPace pace = {});
  ~StatusPublisher() override;

  void report(const report::Report& told) override;
  bool flush() override { return false; }
  int fd() const override { return -1; }
  void stopping();

  enum class State {
    Writing,
    Superseded,  ///< the job has a newer attempt: end this agent's ranks
    JobGone,     ///< the job is gone, or another job has its name
  };
  State state() const { return state_; }
  /// True if all important reports are stored, or can never be.
  bool settled() const;
  /// How long the server has refused writes (outages do not count); 0 if it does not.
  Time refused_for() const;

  struct Counts {
    int64_t stored = 0, conflicts = 0, failures = 0;
  };
  Counts counts() const;

 private:
  enum class Outcome { Stored, Conflict, Again, Refused, Superseded, Gone };
  void run();
  Outcome write(int64_t* version, Time* wait);
  kube::ApiResult<nlohmann::json> write_over(const nlohmann::json& current, int64_t* version,
                                             bool* superseded);
  Outcome failed(const kube::ApiError& error, Time* wait);
  void settle(Outcome outcome, int64_t version, Time wait);

  kube::Client& client_;
  kube::Clock& clock_;
  const JobName job_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  StatusBook book_;
  std::atomic<State> state_ = State::Writing;
  int failures_in_a_row_ = 0;
  std::atomic<int> conflicts_in_a_row_ = 0;  ///< many in a row count as a failure
  Time refused_since_{-1};
  Counts counts_;
  std::string last_problem_;             ///< writing thread only
  std::optional<nlohmann::json> known_;  ///< result of the last write; writing thread only
  bool stop_ = false;
  kube::Cancel cancel_;
  std::thread thread_;
};

}  // namespace dsj::agent

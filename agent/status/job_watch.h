// Agent 0 watches its own job. A suspension or an accepted new revision stops it with a checkpoint.
// Tested by: tests/agent/status/status_publisher_test.cc
#pragma once

#include <mutex>
#include <optional>
#include <thread>

#include "job/restart_budget.h"
#include "kube/reflector.h"

namespace dsj::agent {

/// What agent 0 reads from its DeepSpeedJob (contract.h names the fields).
struct JobView {
  std::string uid;        ///< empty if the job was gone before the first answer
  bool suspend = false;   ///< spec.suspend
  bool deleted = false;   ///< it is being deleted
  bool orphaned = false;  ///< deleted with --cascade=orphan: its pods continue
  std::string revision;   ///< status.revision; empty if the operator has not set it yet
  int64_t attempt = 0;    ///< status.training.attempt
  std::string failed;     ///< the reason, if the operator marked the job as failed
  /// status.restarts, if the operator has written it. `accounted` is the newest attempt in it.
  std::optional<RestartBudget> restarts;
  int64_t accounted = 0;
  std::optional<Time> save_timeout, step_timeout;  ///< status.timeouts
  int64_t stacks = 0;  ///< the newest request for stacks (job/stacks_request.h); 0 if none
  bool operator==(const JobView& other) const {
    return uid == other.uid && suspend == other.suspend && deleted == other.deleted &&
           revision == other.revision && attempt == other.attempt && failed == other.failed &&
           stacks == other.stacks;
  }
};
JobView job_view(const nlohmann::json& job);

/// Why this worker's job must stop now; empty if it must not.
std::string stop_reason(const JobView& view, const std::string& own_revision);

/// How long agent 0 retries to store the end while the server refuses. A deleted job's Role and
/// account are deleted too. Agent 0 may have lost its watch before it saw that; then `leaving`, the
/// deletion of its own pod, is the only sign.
Time refusals_taken(const std::optional<JobView>& job, bool leaving);

class JobWatch final : private kube::Sink {
 public:
  JobWatch(kube::Client& client, kube::Clock& clock, const std::string& ns,
           const std::string& name);
  ~JobWatch() override;
  /// The newest view; nullopt before the server's first answer.
  std::optional<JobView> view() const;

 private:
  void list_begin() override { in_list_ = false; }
  void listed(const kube::Json& object) override;
  void list_done() override;
  void list_aborted() override {}
  void upserted(const kube::Json& object) override;
  void deleted(const kube::Json& object) override;

  mutable std::mutex mutex_;
  std::optional<JobView> view_;
  bool in_list_ = false;  ///< watching thread only: the current list contains the job
  kube::Reflector reflector_;
  kube::Cancel cancel_;
  std::thread thread_;
};

}  // namespace dsj::agent

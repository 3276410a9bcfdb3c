// What the operator mounts for a job's agents (kConfigMountPath/job.json, contract.h). The text is
// the same for all workers and incarnations; the environment has what differs.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/result.h"
#include "job/job_file.h"

namespace dsj {

struct WorkerJob {
  JobFile job;            ///< the agent replaces attempt (1) and world_size (replicas * slots)
  int replicas = 1;       ///< agents
  int slots = 1;          ///< ranks per agent
  int restart_limit = 3;  ///< backoffLimit
  std::chrono::milliseconds save_timeout{600'000};    ///< from a stop request to SIGKILL
  std::chrono::milliseconds step_timeout{1'800'000};  ///< without a step: the job hangs
  bool operator==(const WorkerJob&) const;
};

/// Key in the job's ConfigMap for the ds_config that came from a ConfigMap of the user.
inline constexpr char kDsConfigKey[] = "ds_config";

/// The first arguments of a command that starts the agent that `dsj-agent --install DIRECTORY`
/// copied. Its own loader finds its own libraries in any image, without a variable.
std::vector<std::string> installed_agent_command(const std::string& directory);

/// `<job>-worker-<index>-<incarnation>`.
std::string worker_pod_name(const std::string& job, int worker, int64_t incarnation);

/// Version of job.json. A reader accepts its own version and the one before: an operator of either
/// may create the pods of a run. A field that the older version does not write gets its default.
inline constexpr int kWorkerJobVersion = 1;

/// The order of keys is fixed: the same job gives the same bytes (the operator hashes them).
std::string to_text(const WorkerJob& job);
/// Errors: BadInput with `source` and the key.
Result<WorkerJob> worker_job_from_text(const std::string& text, const std::string& source);

}  // namespace dsj

// What the operator mounts for a job's agents (kConfigMountPath/job.json, contract.h). The text is
// the same for all workers and incarnations; what differs comes in the environment.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/result.h"
#include "job/job_file.h"

namespace dsj {

struct WorkerJob {
  JobFile job;            ///< attempt is 1 and world_size replicas * slots: the agent fills both
  int replicas = 1;       ///< agents
  int slots = 1;          ///< ranks per agent
  int restart_limit = 3;  ///< backoffLimit
  std::chrono::milliseconds save_timeout{600'000};    ///< from a stop request to SIGKILL
  std::chrono::milliseconds step_timeout{1'800'000};  ///< without any step: the job hangs
  bool operator==(const WorkerJob&) const;
};

/// Key of the job's ConfigMap for the ds_config that a ConfigMap of the user's held.
inline constexpr char kDsConfigKey[] = "ds_config";

/// The start of a command line for the agent that `dsj-agent --install DIRECTORY` copied. Its own
/// loader finds its own libraries, whatever the image, and no variable is set.
std::vector<std::string> installed_agent_command(const std::string& directory);

/// `<job>-worker-<index>-<incarnation>`.
std::string worker_pod_name(const std::string& job, int worker, int64_t incarnation);

/// Of job.json. A reader takes its own and the one before: pods of a run may be made by an operator of either, and a
/// field that an older one does not write has its default.
inline constexpr int kWorkerJobVersion = 1;

/// The keys have a fixed order: the same job gives the same bytes (the operator hashes them).
std::string to_text(const WorkerJob& job);
/// BadInput: names `source` and the key.
Result<WorkerJob> worker_job_from_text(const std::string& text, const std::string& source);

}  // namespace dsj

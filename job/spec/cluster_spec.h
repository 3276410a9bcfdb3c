// Reads a spec for a cluster and returns all its findings: those of `dsj validate`, without reading
// files. Pure. The admission webhook and the operator call it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "job/spec/job.h"

namespace dsj::jobspec {

struct ClusterSpec {
  Job job;
  /// spec.elastic: the numbers of workers with which the job can train (elastic.h); else empty.
  std::vector<int> sizes;
  /// Findings of the job and of its ds_config; only of the job if `config_known` is false.
  dsconfig::Resolution resolution;
  bool config_known = true;
};

/// `config_text`: the text from the ConfigMap of deepspeed.configFrom; nullopt if not read.
/// `read_only_root`: as in read_cluster_manifest().
ClusterSpec check_cluster_spec(const std::string& name, const nlohmann::json& spec,
                               const std::optional<std::string>& config_text,
                               std::optional<bool> read_only_root = std::nullopt);

/// The label by which a job of any kind enters a queue of Kueue.
inline constexpr char kQueueLabel[] = "kueue.x-k8s.io/queue-name";
/// The spec of a job with that label, as if runPolicy.schedulingPolicy named the queue. An existing
/// policy stays. `queue` is empty if there is no label.
nlohmann::json with_queue(nlohmann::json spec, const std::string& queue);
/// The contradiction between a policy and that label; nullopt if there is none.
std::optional<dsconfig::Finding> queue_contradiction(const Scheduling& policy,
                                                     const std::string& queue);

/// The value of spec.managedBy for this operator, as in batch/v1's Job and Kueue's MultiKueue.
inline constexpr char kOwnController[] = "training.dsj.dev/deepspeedjob-controller";
/// spec.managedBy if it names another controller: this operator and its webhook then ignore the
/// job. Empty if the job is this operator's.
std::string other_controller(const nlohmann::json& spec);
/// Whether it is a path with a domain before its first '/', as batch/v1 requires of managedBy.
bool is_controller_name(const std::string& text);

/// "spec.training.x: message (hint)".
std::string to_sentence(const dsconfig::Finding& finding);

}  // namespace dsj::jobspec

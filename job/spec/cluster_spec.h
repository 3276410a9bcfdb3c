// A spec as a cluster takes it, with all its findings: those of `dsj validate`, without looking at
// files. Pure. The admission webhook and the operator both call it.
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
  /// Findings of the job and of its ds_config; of the job alone if `config_known` is false.
  dsconfig::Resolution resolution;
  bool config_known = true;
};

/// `config_text`: the text from the ConfigMap that deepspeed.configFrom names; nullopt: not read.
ClusterSpec check_cluster_spec(const std::string& name, const nlohmann::json& spec,
                               const std::optional<std::string>& config_text);

/// The label by which a job of any kind asks Kueue for a place in a queue.
inline constexpr char kQueueLabel[] = "kueue.x-k8s.io/queue-name";
/// The spec of a job with that label, as if it said so in runPolicy.schedulingPolicy. A policy that is there stays. Empty: there is
/// no label.
nlohmann::json with_queue(nlohmann::json spec, const std::string& queue);
/// What is wrong with a job of this policy under that label; nullopt: nothing.
std::optional<dsconfig::Finding> queue_contradiction(const Scheduling& policy,
                                                     const std::string& queue);

/// spec.managedBy of this operator, as batch/v1's Job and Kueue's MultiKueue have the field.
inline constexpr char kOwnController[] = "training.dsj.dev/deepspeedjob-controller";
/// spec.managedBy if it names another controller: this operator and its webhook leave the job alone. Empty: the job is
/// this operator's.
std::string other_controller(const nlohmann::json& spec);
/// Whether it is a path with a domain before its first '/', as batch/v1 asks of managedBy.
bool is_controller_name(const std::string& text);

/// "spec.training.x: message (hint)".
std::string to_sentence(const dsconfig::Finding& finding);

}  // namespace dsj::jobspec

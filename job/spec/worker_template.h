// A DeepSpeedJobTemplate: settings that the pods of many jobs share, stored once per cluster. A job
// names one in spec.workers.templateRef, and spec.workers.template has only its own settings. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace dsj::jobspec {

/// The annotation of a worker template that `dsj restart` sets to the time, like `kubectl rollout
/// restart`: a changed template makes a new gang. Users may set this key, no other of ours.
inline constexpr char kRestartedAt[] = "training.dsj.dev/restartedAt";

/// A template as a job uses it.
struct WorkerTemplate {
  std::string name;
  int64_t generation = 0;
  nlohmann::json pod;  ///< spec.template: a PodTemplateSpec; null if missing
};

/// The template that spec.workers.templateRef names; empty if none.
std::string template_ref(const nlohmann::json& spec);

/// All of it as one text, the same for equal templates; the operator stores it.
std::string to_text(const WorkerTemplate& source);
/// nullopt if it is not such a text.
std::optional<WorkerTemplate> worker_template_from_text(const std::string& text);

/// Merges two pod templates; `own` wins. Objects are merged field by field. Elements of a list that Kubernetes
/// identifies by name are matched by it: containers are merged; variables, volumes, mounts, ports and similar elements
/// are replaced as a whole; new ones follow those of `base`. Any other list of `own`, also tolerations, replaces that
/// of `base`, and so does a probe, a hook or a profile, which has exactly one kind.
nlohmann::json merge_pod_templates(nlohmann::json base, const nlohmann::json& own);

/// A job's spec with `pod` as its template and without a reference.
nlohmann::json with_pod_template(nlohmann::json spec, const nlohmann::json& pod);

}  // namespace dsj::jobspec

// A DeepSpeedJobTemplate: what the pods of many jobs are like, kept once for a cluster. A job names one in
// spec.workers.templateRef and says in spec.workers.template only what is its own. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace dsj::jobspec {

/// The annotation of a worker template that `dsj restart` sets to the time, as `kubectl rollout
/// restart` sets its own: another template is another gang. The only key of ours that a user may set.
inline constexpr char kRestartedAt[] = "training.dsj.dev/restartedAt";

/// A template as a job takes it up.
struct WorkerTemplate {
  std::string name;
  int64_t generation = 0;
  nlohmann::json pod;  ///< spec.template: a PodTemplateSpec; null: the object has none
};

/// The template that spec.workers.templateRef names; empty: none.
std::string template_ref(const nlohmann::json& spec);

/// One text with all of it, the same for the same template; what the operator keeps of it.
std::string to_text(const WorkerTemplate& source);
/// nullopt: that is no such text.
std::optional<WorkerTemplate> worker_template_from_text(const std::string& text);

/// Two pod templates as one. What `own` says wins. Objects are merged field by field. The elements of a list that
/// Kubernetes tells apart by a name are matched by it: containers are merged, variables, volumes, mounts, ports and the
/// like are replaced as a whole; new ones follow those of `base`. Any other list of `own`, tolerations too, replaces
/// that of `base`, and so does a probe, a hook or a profile, which is of one kind only.
nlohmann::json merge_pod_templates(nlohmann::json base, const nlohmann::json& own);

/// A job's spec with `pod` in it and without a reference.
nlohmann::json with_pod_template(nlohmann::json spec, const nlohmann::json& pod);

}  // namespace dsj::jobspec

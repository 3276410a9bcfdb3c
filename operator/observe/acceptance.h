// Decides whether a spec may run: the same checks as `dsj validate`. Pure: the same spec gives the
// same verdict, so the controller keeps one verdict per generation.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "job/spec/job.h"
#include "job/spec/stored_job.h"
#include "job/spec/worker_template.h"

namespace dsj::op {

struct Accepted {
  jobspec::Job job;
  std::vector<int> sizes;  ///< worker counts that fit the batch, if the job is elastic; else empty
  int zero_stage = 0;
  /// A hash of everything that the pods are made from: a different revision needs new pods. It
  /// leaves out suspend, policies, budgets and all that the operator fills in, so that an upgrade
  /// of the operator never restarts a job. For an elastic job it also leaves out the number of
  /// workers; a pass appends the size in force (elastic_size.h).
  std::string revision;
  std::string spec_text;    ///< spec as JSON
  std::string config_text;  ///< from configFrom's ConfigMap; empty if the spec contains the config
  /// The template that the job was made with. `job` includes its fields, spec_text does not.
  std::optional<jobspec::WorkerTemplate> worker_template;
};

/// What the job's ConfigMap holds of it.
jobspec::StoredTexts stored_texts(const Accepted& accepted);

/// The DeepSpeedJobTemplate of a job, as text (worker_template.h).
struct TemplateText {
  std::string name;                 ///< empty means the one that the spec names, if any
  std::optional<std::string> text;  ///< nullopt if it could not be read; `problem` says why
  std::string problem;
};

struct Verdict {
  std::shared_ptr<const Accepted> accepted;  ///< null if the spec is refused
  std::string reason;                        ///< reason of the condition Accepted (conditions.cc)
  std::string message;                       ///< each finding with path and hint
  bool of_other_objects = false;  ///< refused for what a ConfigMap or a template holds, perhaps
};

/// Checks a spec. `config_text` is the text that configFrom refers to, or nullopt if it could not
/// be read; then `problem` says why.
/// `read_only_root`: as in job.h's read_cluster_manifest().
Verdict judge(const std::string& name, const nlohmann::json& spec,
              const std::optional<std::string>& config_text, const std::string& problem,
              const TemplateText& worker_template = {},
              std::optional<bool> read_only_root = std::nullopt);

/// Reads a spec that was accepted before, perhaps by an operator with fewer checks. It stays in
/// force even if today's checks refuse it, so that an upgrade strands no running job. Null if it
/// can no longer be read.
std::shared_ptr<const Accepted> accepted_before(const std::string& name, const nlohmann::json& spec,
                                                const std::string& config_text,
                                                const TemplateText& worker_template);

/// The verdict on a spec whose pods the API server refuses, with the server's message
/// (act/trial.h).
Verdict refused_by_server(const Accepted& accepted, const std::string& sentence);

/// True if the cause of the refusal can go away without an edit of the job and without a watch
/// event, such as an object that is missing or wrong, or an API server that is too old for the
/// template.
bool may_change_by_itself(const Verdict& verdict);

/// Refuses a job whose Kueue queue label (job/spec/cluster_spec.h) contradicts its spec.
Verdict agreeing_with(const std::string& queue_label, Verdict verdict);

/// Refuses a job that needs Volcano or Kueue if this operator was started without support for it.
Verdict possible_with(Verdict verdict, bool volcano, bool kueue);

/// The ConfigMap and key that must be read before judge(); nullopt if configFrom is not set.
std::optional<jobspec::ConfigMapKey> config_source(const nlohmann::json& spec);
/// The text of a ConfigMap's key, from `data` or `binaryData`; nullopt: `problem` says why.
std::optional<std::string> config_in(const nlohmann::json& config_map, const std::string& key,
                                     std::string& problem);

}  // namespace dsj::op

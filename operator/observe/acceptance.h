// Whether a spec may run: `dsj validate`'s checks, in a cluster. Pure, and the same for the same
// spec: the controller keeps the answer per generation.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "job/spec/job.h"
#include "job/spec/worker_template.h"

namespace dsj::op {

struct Accepted {
  jobspec::Job job;
  std::vector<int> sizes;  ///< of an elastic job: the numbers of workers that fit; else empty
  int zero_stage = 0;
  /// Names everything that the pods are made from; another revision means other pods. It leaves out
  /// suspend, policies, budgets and all that the operator fills in, so that an upgrade of the
  /// operator never restarts a job. Of an elastic job it leaves out the number of workers, and a
  /// pass adds the size in force (elastic_size.h).
  std::string revision;
  std::string spec_text;    ///< spec as JSON
  std::string config_text;  ///< from configFrom's ConfigMap; empty: the config is in the spec
  /// The template that it was made with. What that says is in `job`, and not in spec_text.
  std::optional<jobspec::WorkerTemplate> worker_template;
};

/// The DeepSpeedJobTemplate of a job, as text (worker_template.h).
struct TemplateText {
  std::string name;                 ///< empty: the one that the spec names, if it names one
  std::optional<std::string> text;  ///< nullopt: it could not be read, and `problem` says why
  std::string problem;
};

struct Verdict {
  std::shared_ptr<const Accepted> accepted;  ///< null: refused
  std::string reason;                        ///< of the condition Accepted (conditions.cc)
  std::string message;                       ///< each finding with path and hint
};

/// `config_text`: the text that configFrom names; nullopt: it could not be read, and `problem` says
/// why.
Verdict judge(const std::string& name, const nlohmann::json& spec,
              const std::optional<std::string>& config_text, const std::string& problem,
              const TemplateText& worker_template = {});

/// A spec that was accepted before, perhaps by an operator with fewer checks: what these refuse by now stays in force,
/// so that an upgrade strands no job that runs. Null: it cannot be read any more.
std::shared_ptr<const Accepted> accepted_before(const std::string& name, const nlohmann::json& spec,
                                                const std::string& config_text,
                                                const TemplateText& worker_template);

/// The verdict on a spec whose pods the API server refuses, in the server's words (act/trial.h).
Verdict refused_by_server(const Accepted& accepted, const std::string& sentence);

/// Refused for what may change without an edit, and nothing tells the operator of the change: an object that is missing, an API
/// server that knows less than the template.
bool may_change_by_itself(const Verdict& verdict);

/// Refuses a job whose label for Kueue (job/spec/cluster_spec.h) contradicts its spec.
Verdict agreeing_with(const std::string& queue_label, Verdict verdict);

/// Refuses a job that needs Volcano or Kueue if this operator was started without it.
Verdict possible_with(Verdict verdict, bool volcano, bool kueue);

/// The ConfigMap and key that must be read before judge(); nullopt: none.
std::optional<jobspec::ConfigMapKey> config_source(const nlohmann::json& spec);

}  // namespace dsj::op

// Whether a spec may run: the checks of `dsj validate`, in a cluster. Pure, and the same for the
// same spec: the controller keeps the answer per generation.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/jobspec/job.h"

namespace dsj::op {

struct Accepted {
  jobspec::Job job;
  int zero_stage = 0;
  /// Of what the pods are made from: another revision is another set of pods. suspend, policies and
  /// budgets are not in it, nor is anything that the operator fills in, so that an upgrade of the
  /// operator never restarts a job.
  std::string revision;
  std::string spec_text;    ///< spec as JSON
  std::string config_text;  ///< of configFrom's ConfigMap; empty: the config is in the spec
};

struct Verdict {
  std::shared_ptr<const Accepted> accepted;  ///< null: refused
  std::string reason;   ///< ConfigAccepted, ConfigInvalid, Unsupported, ConfigMapMissing
  std::string message;  ///< each finding with path and hint
};

/// `config_text`: what configFrom names, as read; nullopt: it could not be read, and `problem` says
/// why.
Verdict judge(const std::string& name, const nlohmann::json& spec,
              const std::optional<std::string>& config_text, const std::string& problem);

/// What this operator was not started for is refused.
Verdict possible_with(Verdict verdict, bool volcano);

/// ConfigMap and key that must be read before judge().
std::optional<jobspec::ConfigMapKey> config_source(const nlohmann::json& spec);

}  // namespace dsj::op

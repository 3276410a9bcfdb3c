// An AdmissionReview in, its answer out: whether a DeepSpeedJob may be stored, with all its
// findings at once, as in `dsj validate`. It reads neither files nor objects, so a caller learns
// nothing that it did not send. A ds_config in a ConfigMap is left to the operator (condition
// Accepted).
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "common/result.h"

namespace dsj::op {

struct Reviewed {
  bool allowed = true;
  nlohmann::json answer;  ///< an AdmissionReview with a response
};

/// What the API server says against a job's pods, in its own sentence. Both are empty if it would take them, or does not say
/// now: creating them tells.
struct PodAnswer {
  std::string refusal;  ///< whatever the time: an unknown field, a value that it does not take
  /// As things are: a quota, a policy, an account or a priority class that is not there.
  std::string doubt;
};
/// Of the pods of a job (a DeepSpeedJob without findings).
using TryPods = std::function<PodAnswer(const nlohmann::json& job)>;

/// `text`: the body of the API server's request. BadInput: it is not an AdmissionReview of
/// admission.k8s.io/v1, or not of a DeepSpeedJob.
///
/// Errors refuse. What is known but not built, or has no effect, is a warning. On an update only
/// new errors refuse: one that the stored object has already is a warning, so that a job can still
/// be suspended, labelled and deleted after the checks have become stricter.
///
/// `try_pods`, unless null, is asked if nothing else refuses, and only about a template that is new. What the server takes
/// against the pods as things are is a warning.
Result<Reviewed> review(const std::string& text, const TryPods& try_pods = nullptr);

}  // namespace dsj::op

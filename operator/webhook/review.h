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

/// What the API server says against the pods of a job (a DeepSpeedJob without findings); empty: nothing.
using TryPods = std::function<std::string(const nlohmann::json& job)>;

/// `text`: the body of the API server's request. BadInput: it is not an AdmissionReview of
/// admission.k8s.io/v1, or not of a DeepSpeedJob.
///
/// Errors refuse. What is known but not built, or has no effect, is a warning. On an update only
/// new errors refuse: one that the stored object has already is a warning, so that a job can still
/// be suspended, labelled and deleted after the checks have become stricter.
///
/// `try_pods`, unless null, is asked if nothing else refuses, and only about a template that is new.
Result<Reviewed> review(const std::string& text, const TryPods& try_pods = nullptr);

}  // namespace dsj::op

// An AdmissionReview in, its answer out: whether a DeepSpeedJob may be stored, with everything that
// is wrong with it at once, as `dsj validate` says it. Pure; it reads nothing, neither files nor
// the API server: whoever reaches the port learns no more than he sent. A ds_config in a ConfigMap
// is left to the operator (condition Accepted).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/result.h"

namespace dsj::op {

struct Reviewed {
  bool allowed = true;
  nlohmann::json answer;  ///< an AdmissionReview with a response
};

/// `text` is the body of the API server's request. BadInput: it is no AdmissionReview of version
/// admission.k8s.io/v1, or none of a DeepSpeedJob.
///
/// Errors refuse; what is known and not built, or has no effect, is a warning. On an update only
/// what the edit brought refuses: an error that the stored object has, too, is a warning, so that a
/// job can still be suspended, labelled and deleted after the checks have become stricter.
Result<Reviewed> review(const std::string& text);

}  // namespace dsj::op

// Answers an AdmissionReview: whether a DeepSpeedJob may be stored, with all findings at once, as
// in `dsj validate`. It reads neither files nor objects, so a caller learns nothing that it did not
// send. A ds_config in a ConfigMap is checked later, by the operator (condition Accepted).
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/result.h"

namespace dsj::op {

struct Reviewed {
  bool allowed = true;
  nlohmann::json answer;  ///< an AdmissionReview with a response
};

/// The API server's objection to a job's pods, in its own words. Both are empty if it would accept
/// them or gives no answer now; then their creation will show it.
struct PodAnswer {
  std::string refusal;  ///< permanent: an unknown field or an invalid value
  /// May change: a quota, a policy, or a missing account or priority class.
  std::string doubt;
};
/// Tries the pods of a DeepSpeedJob without findings.
using TryPods = std::function<PodAnswer(const nlohmann::json& job)>;

/// `text` is the body of the API server's request. BadInput if it is not an AdmissionReview of
/// admission.k8s.io/v1 for a DeepSpeedJob.
///
/// Errors refuse the object. Unsupported keys and keys without effect are warnings. An update is
/// refused only for new errors: an error that the stored object already has is a warning, so that a
/// job can still be suspended, labelled and deleted after the checks have become stricter.
///
/// `try_pods`, unless null, is called if nothing else refuses, and only for a new template. Its
/// doubts are warnings.
/// `read_only_root`: as in job/spec/job.h's read_cluster_manifest().
Result<Reviewed> review(const std::string& text, const TryPods& try_pods = nullptr,
                        std::optional<bool> read_only_root = std::nullopt);

}  // namespace dsj::op

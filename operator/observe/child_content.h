// What of a child object is ours to keep: the operator compares it with what it would make today,
// and mends what somebody changed or an older operator made otherwise.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace dsj::op {

/// A hash of the compared fields of an object; the same for the object as rendered and as an API
/// server completes it. 0: objects of this kind are not compared. A ConfigMap cannot change, a pod
/// is replaced by its revision, and others add to a ServiceAccount. Good within one process.
size_t content_of(const std::string& kind, const nlohmann::json& object);

}  // namespace dsj::op

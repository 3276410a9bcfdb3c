// Selects the fields of a child object that the operator maintains. The operator compares them with
// what it would render today and repairs objects that were edited or that an older operator
// rendered differently.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace dsj::op {

/// A hash of the maintained fields of an object. It is the same for the object as rendered and as
/// an API server completes it. 0 if objects of this kind are not compared: a ConfigMap is
/// immutable, a pod is replaced by its revision, and other controllers add to a ServiceAccount.
/// Valid within one process.
size_t content_of(const std::string& kind, const nlohmann::json& object);

}  // namespace dsj::op

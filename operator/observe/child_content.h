// Selects the fields of a child object that the operator maintains. The operator compares them with
// what it would render today and repairs objects that were edited or that an older operator
// rendered differently.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace dsj::op {

/// The maintained fields of an object; null if objects of this kind are not compared: a ConfigMap is
/// immutable, a pod is replaced by its revision, and other controllers add to a ServiceAccount.
nlohmann::json maintained(const std::string& kind, const nlohmann::json& object);
/// The first maintained field that differs from `wanted`, such as "spec.selector.app"; empty if
/// none does.
std::string changed_field(const std::string& kind, const nlohmann::json& found,
                          const nlohmann::json& wanted);

/// A hash of the maintained fields of an object. It is the same for the object as rendered and as
/// an API server completes it. 0 if objects of this kind are not compared. Valid within one
/// process.
size_t content_of(const std::string& kind, const nlohmann::json& object);

}  // namespace dsj::op

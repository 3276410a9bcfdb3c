// What cli-utils' kstatus computes for a resource of a kind that it does not know, by the rules of its
// pkg/kstatus/status/{generic,status}.go: a twin to compare with.
#pragma once

#include <string>

#include "common/json.h"

namespace dsj::op::testing {

inline std::string kstatus(const nlohmann::json& object) {
  const auto& metadata = json_child(object, "metadata");
  const auto& status = json_child(object, "status");
  if (!json_text(metadata, "deletionTimestamp").empty()) return "Terminating";
  const auto generation = json_whole(metadata, "generation");
  const auto observed = json_whole(status, "observedGeneration");
  if (generation && observed && *generation != *observed) return "InProgress";
  const auto& conditions = json_child(status, "conditions");
  const auto list = conditions.is_array() ? conditions : nlohmann::json::array();
  for (const auto& one : list) {
    if (json_text(one, "status") != "True") continue;
    if (json_text(one, "type") == "Reconciling") return "InProgress";
    if (json_text(one, "type") == "Stalled") return "Failed";
  }
  for (const auto& one : list)
    if (json_text(one, "type") == "Ready")
      return json_text(one, "status") == "True" ? "Current" : "InProgress";
  return "Current";
}

}  // namespace dsj::op::testing

// A pod as it is rendered for a World's job, and what its containers are told.
#pragma once

#include "operator/render/render_pod.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {

inline Json pod_of(World& world, int worker = 0, const std::string& gang = {}) {
  return render_pod(world.o, *world.o.wanted.accepted, world.status(), worker, 3, gang).object;
}

/// A variable's value, or which resource of the container is its value; "": neither.
inline std::string env(const Json& container, const std::string& name) {
  for (const Json& entry : container["env"]) {
    if (entry["name"] != name) continue;
    if (entry.contains("value")) return entry["value"];
    const Json::json_pointer resource("/valueFrom/resourceFieldRef/resource");
    if (entry.contains(resource)) return entry[resource];
    const Json::json_pointer field("/valueFrom/fieldRef/fieldPath");
    if (entry.contains(field)) return entry[field];
  }
  return "";
}

}  // namespace dsj::op::testing

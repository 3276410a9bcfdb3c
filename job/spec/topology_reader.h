// Reads spec.workers.topology. Internal to jobspec.
// Tested by: tests/job/spec/topology_test.cc
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "job/spec/field_reader.h"
#include "job/spec/policies.h"

namespace dsj::jobspec {

/// Whether an API server takes it as the key of a label: [PREFIX/]NAME.
bool is_label_key(const std::string& text);

/// nullopt: `workers` has none, or it is wrong and reported.
std::optional<Topology> read_topology(const nlohmann::json& workers, FieldReader& reader);

/// Reports what cannot hold beside it: another scheduler's own topology, and what the pod template
/// says (null: there is no template).
void check_topology(const Topology& topology, GangScheduler scheduler,
                    const nlohmann::json& pod_template, FieldReader& reader);

}  // namespace dsj::jobspec

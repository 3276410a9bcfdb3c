// --set spec.path=value: changes one field of a manifest from the command line. Internal to
// jobspec.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::jobspec {

struct Override {
  std::vector<std::string> path;  ///< "spec", "training", "maxSteps"
  nlohmann::json value;
  std::string text;  ///< as given, for messages
};

/// Parses "spec.training.maxSteps=20". The value is YAML. Paths begin with "spec" or "metadata".
Result<Override> parse_override(const std::string& text);

/// Sets the value and creates missing objects. `skip`: the number of leading names of the path to
/// ignore. Errors: BadInput if the path leads through a value that is not an object.
Status apply(const Override& change, size_t skip, nlohmann::json& root);

}  // namespace dsj::jobspec

// --set spec.path=value: one field of a manifest changed from the command line. Internal.
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

/// "spec.training.maxSteps=20"; the value is YAML. Paths begin with "spec" or "metadata".
Result<Override> parse_override(const std::string& text);

/// Sets the value, making objects on the way. BadInput when the path goes through a value that is
/// not an object. `skip` leading names of the path are left out.
Status apply(const Override& change, size_t skip, nlohmann::json& root);

}  // namespace dsj::jobspec

// One Hugging Face argument into spec.training, by its snake_case name.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/result.h"

namespace dsj::jobimport {

/// Puts `value` under its camelCase name, as a number where it is one ("1e-6" is). Null is not
/// given. BadInput: no such argument, a value of another type, a value that is still a ${...}.
Status take_training_field(nlohmann::json& training, const std::string& name,
                           const nlohmann::json& value);

}  // namespace dsj::jobimport

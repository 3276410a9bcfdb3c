// Reads a Hugging Face config.json for the engine and the memory model. It refuses what the engine
// cannot run, with the field and the reason, and never guesses.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/result.h"
#include "job/layout/shape/model_shape.h"

namespace dsj::layout {

/// `where` names the file in messages. Errors: BadInput if model_type is unknown (lists the known
/// ones), if a size is too large to count with, or if a setting would change the result and is not
/// built: other rope scalings, another activation, tensor-parallel pretraining.
Result<ModelConfig> model_config_from_json(const nlohmann::json& config, const std::string& where);

/// Reads DIRECTORY/config.json. Errors as above.
Result<ModelConfig> read_model_config(const std::string& directory);

}  // namespace dsj::layout

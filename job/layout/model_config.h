// A Hugging Face config.json as the engine and the memory model read it. It refuses what the engine
// cannot run, with the field and the reason, and never guesses.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/result.h"
#include "job/layout/model_shape.h"

namespace dsj::layout {

/// `where` names the file in messages. BadInput: an unknown model_type (lists the known ones), or a
/// setting that would change the result and is not built: other rope scalings, another activation,
/// tensor-parallel pretraining. Also a size beyond all counting: field and range.
Result<ModelConfig> model_config_from_json(const nlohmann::json& config, const std::string& where);

/// Reads DIRECTORY/config.json. Errors as above.
Result<ModelConfig> read_model_config(const std::string& directory);

}  // namespace dsj::layout

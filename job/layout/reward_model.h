// A reward model: a model's body with a score [1, hidden] instead of its head, as transformers'
// AutoModelForSequenceClassification with one label. The score is read at the last token of a row
// that is not padding.
// Tested by: tests/job/layout/reward_model_test.cc
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/result.h"
#include "job/layout/shape/model_shape.h"

namespace dsj::layout {

/// transformers' class of such a model; null if it has none for this type.
const char* reward_class(const std::string& model_type);

/// Whether config.json is of a sequence classifier. Errors: BadInput if it has more than one label.
Result<bool> is_reward_config(const nlohmann::json& config, const std::string& where);

/// `model` with a score; a reward model is returned unchanged. Errors: BadInput if transformers has
/// no such class, or the model is not text only. `where`: the file that names the type.
Result<ModelConfig> as_reward_model(ModelConfig model, const std::string& where);

}  // namespace dsj::layout

// Readers of families whose experts are chosen by sigmoids and a correction of the choice, as
// DeepSeek-V3 does, and of what shares its attention. Internal to layout (families.cc).
// Tested by: tests/job/layout/model_config_test.cc
#pragma once

#include <nlohmann/json.hpp>

#include "job/layout/config_fields.h"
#include "job/layout/model_shape.h"

namespace dsj::layout {

void read_deepseek_v3(const nlohmann::json& config, Fields& fields, ModelConfig& out);
void read_dots1(const nlohmann::json& config, Fields& fields, ModelConfig& out);
void read_glm4_moe(const nlohmann::json& config, Fields& fields, ModelConfig& out);
void read_glm4_moe_lite(const nlohmann::json& config, Fields& fields, ModelConfig& out);
void read_minimax_m2(const nlohmann::json& config, Fields& fields, ModelConfig& out);
void read_solar_open(const nlohmann::json& config, Fields& fields, ModelConfig& out);
void read_youtu(const nlohmann::json& config, Fields& fields, ModelConfig& out);

}  // namespace dsj::layout

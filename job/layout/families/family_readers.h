// The readers of config.json, one per family, which the table in families.cc lists. There is one
// file for each kind of layer. Internal to layout.
// Tested by: tests/job/layout/model_config_test.cc
#pragma once

#include <nlohmann/json.hpp>

#include "job/layout/shape/config_fields.h"
#include "job/layout/shape/model_shape.h"

namespace dsj::layout {

/// Sets everything in `out` except model_type; reports problems to `fields`.
using FamilyReader = void(const nlohmann::json& config, Fields& fields, ModelConfig& out);

// llama_families.cc: RMSNorm, gated MLP
FamilyReader read_apertus, read_arcee, read_cwm, read_ernie, read_ernie_moe, read_exaone4,
    read_exaone_moe, read_glm, read_glm4, read_granite, read_helium, read_hunyuan, read_hunyuan_moe,
    read_hyperclovax, read_internlm3, read_iquestcoder, read_lfm2, read_lfm2_moe, read_llama,
    read_ministral, read_ministral3, read_mistral, read_olmo2, read_olmo3, read_phi3, read_qwen2,
    read_qwen3, read_seed_oss, read_smollm3;
// gemma_families.cc
FamilyReader read_gemma, read_gemma2, read_gemma3, read_gemma4, read_gemma4_unified,
    read_vaultgemma;
// expert_families.cc: mixtures of experts, the gated delta rule
FamilyReader read_deepseek_v2, read_deepseek_v3, read_dots1, read_flex_olmo, read_glm4_moe,
    read_glm4_moe_lite, read_gpt_oss, read_granitemoe, read_granitemoehybrid, read_granitemoeshared,
    read_mellum, read_minicpm3, read_minimax_m2, read_mixtral, read_olmoe, read_qwen2_moe,
    read_qwen3_5, read_qwen3_5_moe, read_qwen3_moe, read_qwen3_next, read_solar_open, read_youtu;
// layer_norm_families.cc: LayerNorm, attention and MLP side by side, learned positions
FamilyReader read_cohere, read_cohere2, read_falcon, read_gpt2, read_gpt_bigcode, read_gpt_neo,
    read_gpt_neox, read_gptj, read_jais2, read_nemotron, read_olmo, read_opt, read_phi,
    read_stablelm, read_starcoder2;
// text_parts.cc: the text part of a model with a vision part
FamilyReader read_aya_vision_part, read_gemma3_part, read_gemma4_part, read_gemma4_unified_part,
    read_internvl_part, read_lfm2_vl_part, read_llava_next_part, read_llava_onevision_part,
    read_llava_part, read_mistral3_part, read_qwen2_5_vl_part, read_qwen2_vl_part,
    read_qwen3_5_moe_part, read_qwen3_5_part, read_qwen3_vl_moe_part, read_qwen3_vl_part,
    read_smolvlm_part;

}  // namespace dsj::layout

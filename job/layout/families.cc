#include "job/layout/families.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "job/layout/family_fields.h"

namespace dsj::layout {
namespace {

using nlohmann::json;

// ---- which layers have a window, where config.json does not list layer_types

bool every_layer(int64_t) {
  return true;
}
/// All but each pattern-th; 0: none.
auto but_each(int64_t pattern) {
  return [pattern](int64_t layer) { return pattern > 0 && (layer + 1) % pattern != 0; };
}

// ---- Llama and what differs from it in data alone

void all_biases(Fields& fields, const char* key, ModelConfig& out) {
  out.qkv_bias = out.o_bias = fields.flag(key, false);
}

void no_slices(Fields& fields) {
  fields.require(fields.whole("pretraining_tp", 0, INT64_MAX, 1) == 1, "pretraining_tp",
                 "is not 1; sliced products are not built, and 1 computes the same numbers");
}

void read_llama(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {}, out);
  all_biases(fields, "attention_bias", out);
  out.mlp_bias = fields.flag("mlp_bias", false);
  no_slices(fields);
}

void read_mistral(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 131072}, out);
  out.qkv_bias = false;
  read_windows(config, fields, read_window(config, fields, 4096), every_layer, out);
}

/// Qwen2 and Qwen3: use_sliding_window; per layer either layer_types or max_window_layers.
void read_qwen_windows(const json& config, Fields& fields, ModelConfig& out) {
  const int64_t window =
      fields.flag("use_sliding_window", false) ? read_window(config, fields, 4096) : 0;
  const int64_t first = window > 0 ? fields.whole("max_window_layers", 0, INT64_MAX, 28) : 0;
  read_windows(config, fields, window, [first](int64_t layer) { return layer >= first; }, out);
}

void read_qwen2(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 32768}, out);
  read_qwen_windows(config, fields, out);
}

void read_qwen3(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 32768, .head_dim = 128}, out);
  all_biases(fields, "attention_bias", out);
  out.qk_norm = true;
  read_qwen_windows(config, fields, out);
}

void read_granite(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {}, out);
  all_biases(fields, "attention_bias", out);
  out.mlp_bias = fields.flag("mlp_bias", false);
  const auto factor = [&](const char* key) { return fields.number(key, 1, kTiny, kFactorMax); };
  out.embedding_scale = factor("embedding_multiplier");
  out.residual_scale = factor("residual_multiplier");
  out.attention_multiplier = factor("attention_multiplier");
  out.logits_scale = 1 / factor("logits_scaling");
}

void read_smollm3(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 32768, .theta = 2e6, .tied = true}, out);
  all_biases(fields, "attention_bias", out);
  out.mlp_bias = fields.flag("mlp_bias", false);
  const int64_t every = fields.positive("no_rope_layer_interval", kIndexMax, 4);
  out.no_rope.assign(static_cast<size_t>(out.num_layers), false);
  const bool listed = !fields.absent("no_rope_layers");
  const json list = listed ? config["no_rope_layers"] : json::array();
  const bool fits =
      !listed || (list.is_array() && static_cast<int64_t>(list.size()) >= out.num_layers &&
                  std::ranges::all_of(list, [](const json& one) { return one == 0 || one == 1; }));
  fields.require(fits, "no_rope_layers", "is not a list with 0 or 1 for each layer");
  for (int64_t layer = 0; fits && layer < out.num_layers; ++layer)
    out.no_rope[layer] = listed ? list[layer] == 0 : (layer + 1) % every == 0;
  if (!fields.flag("use_sliding_window", false)) return;
  read_windows(config, fields, read_window(config, fields, 0),
               [&](int64_t layer) { return out.no_rope[layer]; }, out);
}

void read_seed_oss(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 524288, .head_dim = 128}, out);
  out.qkv_bias = fields.flag("attention_bias", true);
  out.o_bias = fields.flag("attention_out_bias", false);
  out.mlp_bias = fields.flag("mlp_bias", false);
  out.dropout.attention = fields.probability("attention_dropout", 0.1);
  out.dropout.residual = fields.probability("residual_dropout", 0.1);
  no_slices(fields);
}

void read_phi3(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 4096, .norm_eps = 1e-5, .partial_rotary = 1}, out);
  out.qkv_bias = false;
  out.fused_qkv = out.fused_gate_up = true;
  out.dropout.residual = fields.probability("resid_pdrop", 0);
  read_windows(config, fields, read_window(config, fields, 0), every_layer, out);
}

void read_cwm(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 131072, .head_dim = 128, .norm_eps = 1e-5, .theta = 1e6}, out);
  out.qkv_bias = false;
  if (fields.absent("rope_parameters") && fields.absent("rope_scaling"))
    out.rope = {.scaling = RopeConfig::Scaling::Llama3,
                .theta = 1e6,
                .factor = 16,
                .original_max = 8192};
  read_windows(config, fields, read_window(config, fields, 8192),
               [](int64_t layer) { return layer % 4 != 0; }, out);
}

void read_ernie(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 131072,
              .head_dim = 128,
              .norm_eps = 1e-5,
              .theta = 500000,
              .tied = true},
             out);
  all_biases(fields, "use_bias", out);
  out.mlp_bias = out.o_bias;
  out.rope_in_pairs = true;
}

void read_helium(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 4096, .head_dim = 128, .norm_eps = 1e-8, .theta = 100000}, out);
  out.norm = NormKind::RmsOnce;
  out.qkv_bias = fields.flag("attention_bias", false);
  out.mlp_bias = fields.flag("mlp_bias", false);
  out.rope_in_pairs = true;
  fields.require(out.query_size() == out.hidden_size, "head_dim",
                 "times num_attention_heads is not hidden_size");
}

void read_arcee(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 4096, .norm_eps = 1e-5, .activation = "relu2"}, out);
  all_biases(fields, "attention_bias", out);
  out.mlp_bias = fields.flag("mlp_bias", false);
  out.gated = false;
}

// ---- norms behind attention and the MLP

void read_olmo2(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.norm_eps = 1e-5}, out);
  all_biases(fields, "attention_bias", out);
  out.norm = NormKind::RmsOnce;
  out.pre_norms = false;
  out.post_norms = out.qk_norm = out.qk_norm_whole = true;
}

/// Layers with a window keep the unscaled rope.
void read_olmo3(const json& config, Fields& fields, ModelConfig& out) {
  Defaults defaults{.norm_eps = 1e-5, .theta = 500000};
  const bool by_type = !rope_object_of(config, "full_attention").empty();
  defaults.rope_by_layer_type = by_type;
  read_shape(config, fields, defaults, out);
  all_biases(fields, "attention_bias", out);
  out.norm = NormKind::RmsOnce;
  out.pre_norms = false;
  out.post_norms = out.qk_norm = out.qk_norm_whole = true;
  read_windows(config, fields, read_window(config, fields, 4096), but_each(4), out);
  if (!by_type) {
    out.local_rope = RopeConfig{.theta = out.rope.theta};
    return;
  }
  const double theta = fields.number("rope_theta", defaults.theta, kTiny, 1e15);
  const auto of = [&](const char* type) {
    return read_rope_object(rope_object_of(config, type), std::string("rope_parameters.") + type,
                            theta, fields, out);
  };
  out.rope = of("full_attention");
  out.local_rope = of("sliding_attention");
}

void read_exaone4(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.norm_eps = 1e-5}, out);
  out.qkv_bias = false;
  out.pre_norms = false;
  out.post_norms = out.qk_norm = true;
  // 32B writes its pattern as letters: "LLLG".
  const json pattern = config.value("sliding_window_pattern", json(4));
  int64_t every = 4;
  if (pattern.is_string())
    every = static_cast<int64_t>(pattern.get_ref<const std::string&>().size());
  else
    every = fields.whole("sliding_window_pattern", 0, kIndexMax, 4);
  read_windows(config, fields, read_window(config, fields, 4096), but_each(every), out);
  const bool hybrid = !is_null(config, "sliding_window");
  out.no_rope.assign(static_cast<size_t>(out.num_layers), false);
  for (int64_t layer = 0; layer < out.num_layers; ++layer)
    out.no_rope[layer] = hybrid && out.windows[layer] == 0;
}

void read_glm_shape(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 131072,
              .head_dim = 128,
              .norm_eps = 1.5625e-7,
              .partial_rotary = 0.5},
             out);
  out.qkv_bias = fields.flag("attention_bias", true);
  out.fused_gate_up = out.rope_in_pairs = true;
}

void read_glm4(const json& config, Fields& fields, ModelConfig& out) {
  read_glm_shape(config, fields, out);
  out.post_norms = true;
  out.names.post_attention_norm = "post_self_attn_layernorm";
  out.names.post_mlp_norm = "post_mlp_layernorm";
}

// ---- Gemma

void read_gemma_shape(const json& config, Fields& fields, Defaults defaults, ModelConfig& out) {
  defaults.head_dim = 256;
  defaults.tied = true;
  defaults.activation = "gelu_pytorch_tanh";
  read_shape(config, fields, defaults, out);
  // A released config says gelu and means the tanh form; so does transformers.
  if (out.activation == Activation::Gelu) out.activation = Activation::GeluTanh;
  all_biases(fields, "attention_bias", out);
  out.norm = NormKind::RmsPlusOne;
  out.embedding_scale = std::sqrt(static_cast<double>(out.hidden_size));
  fields.require(!fields.flag("use_bidirectional_attention", false), "use_bidirectional_attention",
                 "is true; this engine trains causal models");
}

void read_gemma(const json& config, Fields& fields, ModelConfig& out) {
  read_gemma_shape(config, fields, {.max_position = 8192}, out);
}

/// Gemma 2 and 3: norms on both sides, a scale of its own, caps.
void read_gemma_layers(Fields& fields, double logits_cap, double scores_cap, ModelConfig& out) {
  out.post_norms = true;
  out.names.norm2 = "pre_feedforward_layernorm";
  out.attention_multiplier =
      1 / std::sqrt(fields.number("query_pre_attn_scalar", 256, kTiny, kFactorMax));
  out.logits_cap = fields.number("final_logit_softcapping", logits_cap, 0, kFactorMax);
  out.scores_cap = fields.number("attn_logit_softcapping", scores_cap, 0, kFactorMax);
}

void read_gemma2(const json& config, Fields& fields, ModelConfig& out) {
  read_gemma_shape(config, fields, {.max_position = 8192, .activation_key = "hidden_activation"},
                   out);
  const bool no_logits = is_null(config, "final_logit_softcapping");
  const bool no_scores = is_null(config, "attn_logit_softcapping");
  read_gemma_layers(fields, no_logits ? 0 : 30, no_scores ? 0 : 50, out);
  read_windows(config, fields, read_window(config, fields, 4096), but_each(2), out);
}

void read_gemma3(const json& config, Fields& fields, ModelConfig& out) {
  read_gemma_shape(config, fields,
                   {.max_position = 131072,
                    .rope_by_layer_type = true,
                    .activation_key = "hidden_activation"},
                   out);
  read_gemma_layers(fields, 0, 0, out);
  out.qk_norm = true;
  read_windows(config, fields, read_window(config, fields, 4096),
               but_each(fields.positive("sliding_window_pattern", kIndexMax, 6)), out);
  const auto rope = [&](const char* type, const char* theta_key, double theta) {
    json object = rope_object_of(config, type);
    const bool full = std::string(type) == "full_attention";
    if (full && !fields.absent("rope_scaling") && config["rope_scaling"].is_object())
      object.update(config["rope_scaling"]);
    return read_rope_object(object, std::string("rope_parameters.") + type,
                            fields.number(theta_key, theta, kTiny, 1e15), fields, out);
  };
  out.rope = rope("full_attention", "rope_theta", 1e6);
  out.local_rope = rope("sliding_attention", "rope_local_base_freq", 1e4);
}

// ---- LayerNorm

void read_starcoder2(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 4096,
              .norm_eps = 1e-5,
              .norm_eps_key = "norm_epsilon",
              .tied = true,
              .activation = "gelu_pytorch_tanh"},
             out);
  out.norm = NormKind::Layer;
  out.norm_bias = true;
  out.qkv_bias = out.o_bias = out.mlp_bias = fields.flag("use_bias", true);
  out.gated = false;
  out.names.up = "mlp.c_fc";
  out.names.down = "mlp.c_proj";
  out.dropout.embedding = fields.probability("embedding_dropout", 0);
  out.dropout.residual = fields.probability("residual_dropout", 0);
  read_windows(config, fields, read_window(config, fields, 0), every_layer, out);
}

void read_stablelm(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 4096,
              .norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_eps",
              .partial_rotary = 0.25},
             out);
  out.norm = NormKind::Layer;
  out.norm_bias = true;
  out.qkv_bias = fields.flag("use_qkv_bias", false);
  const auto off = [&](const char* key, const char* what) {
    fields.require(!fields.flag(key, false), key, std::string("is true; ") + what);
  };
  off("qk_layernorm", "a LayerNorm for each head is not built");
  off("use_parallel_residual", "attention and MLP side by side are not built");
  fields.require(fields.probability("hidden_dropout", 0) == 0, "hidden_dropout",
                 "is not 0; dropout on the MLP alone is not built");
}

void read_nemotron(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 4096,
              .norm_eps = 1e-5,
              .norm_eps_key = "norm_eps",
              .partial_rotary = 0.5,
              .activation = "relu2"},
             out);
  out.norm = NormKind::LayerPlusOne;
  out.norm_bias = true;
  all_biases(fields, "attention_bias", out);
  out.mlp_bias = fields.flag("mlp_bias", false);
  out.gated = false;
}

void read_gpt2(const json&, Fields& fields, ModelConfig& out) {
  out.block = Block::Gpt2;
  out.norm = NormKind::Layer;
  out.norm_bias = true;
  out.gated = false;
  out.activation = Activation::GeluTanh;
  out.vocab_size = fields.positive("vocab_size", kIndexMax);
  out.hidden_size = fields.positive("n_embd", kWidthMax);
  out.intermediate_size = fields.positive("n_inner", kInnerMax, 4 * out.hidden_size);
  out.num_layers = fields.positive("n_layer", kLayersMax);
  out.num_heads = out.num_kv_heads = fields.positive("n_head", kWidthMax);
  out.max_position = fields.positive("n_positions", kIndexMax, 1024);
  out.norm_eps = fields.number("layer_norm_epsilon", 1e-5, 0, 1);
  out.tied = fields.flag("tie_word_embeddings", true);
  out.head_dim = std::max<int64_t>(out.hidden_size / out.num_heads, 1);
  out.o_bias = out.mlp_bias = true;
  out.scale_attention = fields.flag("scale_attn_weights", true);
  out.scale_by_layer = fields.flag("scale_attn_by_inverse_layer_idx", false);
  // It asks for fp32 scores and probabilities, which are fp32 here anyway.
  fields.flag("reorder_and_upcast_attn", false);
  out.dropout = {.embedding = fields.probability("embd_pdrop", 0.1),
                 .attention = fields.probability("attn_pdrop", 0.1),
                 .residual = fields.probability("resid_pdrop", 0.1)};
  fields.require(out.hidden_size % out.num_heads == 0, "n_head", "does not divide n_embd");
  fields.require(fields.text("activation_function", "gelu_new") == "gelu_new",
                 "activation_function", "is not \"gelu_new\", the only one built for this family");
  fields.require(!fields.flag("add_cross_attention", false), "add_cross_attention",
                 "is true; an encoder beside the model is not built");
}

constexpr Family kFamilies[] = {
    {"llama", "Llama 2, Llama 3, SmolLM2 and models of the same shape",
     "`attention_bias`, `mlp_bias`; `pretraining_tp` must be 1", read_llama},
    {"mistral", "Mistral, Ministral",
     "`sliding_window` a number or null (absent: 4096, as in transformers)", read_mistral},
    {"qwen2", "Qwen1.5, Qwen2, Qwen2.5",
     "`use_sliding_window` with `max_window_layers` or `layer_types`", read_qwen2},
    {"qwen3", "Qwen3, dense", "`head_dim` (absent: 128), `attention_bias`, windows as in qwen2",
     read_qwen3},
    {"gemma", "Gemma, CodeGemma", "`head_dim` (absent: 256)", read_gemma},
    {"gemma2", "Gemma 2",
     "both soft caps, `query_pre_attn_scalar`, `sliding_window`, `layer_types`", read_gemma2},
    {"gemma3_text", "Gemma 3 text: 270M, 1B",
     "a rope for each type of layer, `query_pre_attn_scalar`, `sliding_window_pattern`",
     read_gemma3},
    {"phi3", "Phi-3, Phi-3.5, Phi-4, Phi-4-mini", "`partial_rotary_factor`, `sliding_window`",
     read_phi3},
    {"smollm3", "SmolLM3", "`no_rope_layers`, `no_rope_layer_interval`, windows", read_smollm3},
    {"granite", "Granite 3, dense", "the four multipliers, `attention_bias`, `mlp_bias`",
     read_granite},
    {"olmo2", "OLMo 2", "`attention_bias`", read_olmo2},
    {"olmo3", "OLMo 3", "`layer_types`, `sliding_window`; windows keep the unscaled rope",
     read_olmo3},
    {"glm", "GLM-4-9B", "`partial_rotary_factor`, `attention_bias`",
     [](const json& config, Fields& fields, ModelConfig& out) {
       read_glm_shape(config, fields, out);
     }},
    {"glm4", "GLM-4-0414, GLM-Z1", "as glm", read_glm4},
    {"exaone4", "EXAONE 4.0", "`sliding_window_pattern`, `layer_types`; full layers have no rope",
     read_exaone4},
    {"seed_oss", "Seed-OSS", "`attention_bias`, `attention_out_bias`, `residual_dropout`",
     read_seed_oss},
    {"ernie4_5", "ERNIE 4.5, dense", "`use_bias`", read_ernie},
    {"helium", "Helium", "`attention_bias`, `mlp_bias`", read_helium},
    {"arcee", "AFM-4.5B", "`attention_bias`, `mlp_bias`", read_arcee},
    {"cwm", "CWM", "`layer_types`, `sliding_window`", read_cwm},
    {"nemotron", "Nemotron-4, Minitron", "`partial_rotary_factor`, biases", read_nemotron},
    {"starcoder2", "StarCoder2", "`use_bias`, `sliding_window`, its three dropouts",
     read_starcoder2},
    {"stablelm", "StableLM 2, StableLM-3B",
     "`partial_rotary_factor`, `use_qkv_bias`; parallel residuals are refused", read_stablelm},
    {"gpt2", "GPT-2",
     "`n_embd` and similar fields, `n_inner`, `scale_attn_weights`, "
     "`scale_attn_by_inverse_layer_idx`; `activation_function` must be gelu_new",
     read_gpt2},
};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

const Family* family_of(const std::string& model_type) {
  const auto* found = std::ranges::find_if(
      kFamilies, [&](const Family& one) { return model_type == one.model_type; });
  return found == std::end(kFamilies) ? nullptr : found;
}

std::string known_families() {
  std::string text = "known model types: ";
  for (const Family& one : kFamilies)
    text += std::string(one.model_type) + " (" + one.models + ")" +
            (&one == std::end(kFamilies) - 1 ? "" : ", ");
  return text;
}

}  // namespace dsj::layout

#include "job/layout/families.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "job/layout/delta_pieces.h"
#include "job/layout/expert_families.h"
#include "job/layout/family_fields.h"

namespace dsj::layout {
namespace {

using nlohmann::json;

// ---- Llama and what differs from it in data alone

void read_llama(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {}, out);
  all_biases(fields, "attention_bias", out);
  out.mlp_bias = fields.flag("mlp_bias", false);
  no_slices(fields);
}

void read_mistral(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 131072, .kv_heads = 8}, out);
  out.qkv_bias = false;
  read_windows(config, fields, read_window(config, fields, 4096), every_layer, out);
}

/// Qwen2 and Qwen3: use_sliding_window; per layer either layer_types or max_window_layers.
void read_qwen_windows(const json& config, Fields& fields, ModelConfig& out) {
  const int64_t window =
      fields.flag("use_sliding_window", false) ? read_window(config, fields, 4096) : 0;
  const int64_t first = window > 0 ? fields.whole("max_window_layers", 0, INT64_MAX, 28) : 0;
  read_windows(
      config, fields, window, [first](int64_t layer) { return layer >= first; }, out);
}

void read_qwen2(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 32768, .kv_heads = 32}, out);
  read_qwen_windows(config, fields, out);
}

void read_qwen3(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 32768, .head_dim = 128, .kv_heads = 32}, out);
  all_biases(fields, "attention_bias", out);
  out.qk_norm = true;
  read_qwen_windows(config, fields, out);
}

void read_ministral(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 131072, .kv_heads = 8}, out);
  out.qkv_bias = false;
  read_windows(config, fields, read_window(config, fields, 4096), every_layer, out);
}

/// Query and key are normed after they turned. A scaling with alpha stretches the base once, whatever
/// the length.
void read_hunyuan(const json& config, Fields& fields, ModelConfig& out) {
  json plain = config;
  double alpha = 0;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto it = plain.find(key);
    if (it == plain.end() || !it->is_object() || !it->contains("alpha")) continue;
    const std::string type = it->value("rope_type", it->value("type", std::string()));
    if (type != "dynamic") continue;
    Fields rope(*it, {}, std::string(key) + ".");
    alpha = rope.number("alpha", 0, 0, kFactorMax);
    fields.inherit(rope);
    if (alpha == 0) continue;
    const json theta = it->value("rope_theta", json());
    *it = {{"rope_type", "default"}};
    if (!theta.is_null()) (*it)["rope_theta"] = theta;
    break;
  }
  read_shape(plain, fields, {.norm_eps = 1e-5, .padding = 0}, out);
  all_biases(fields, "attention_bias", out);
  out.qk_norm = out.qk_norm_after_rope = true;
  out.names.q_norm = "query_layernorm";
  out.names.k_norm = "key_layernorm";
  no_slices(fields);
  const auto dim = static_cast<double>(out.head_dim);
  fields.require(alpha == 0 || out.head_dim > 2, "head_dim", "is 2; alpha has no exponent for it");
  if (alpha > 0) out.rope.theta *= std::pow(alpha, dim / (dim - 2));
}

/// As many for every layer, in files a number or a list.
void one_for_all_layers(json& config, Fields& fields, const char* key) {
  const auto list = config.find(key);
  if (list == config.end() || !list->is_array()) return;
  const bool alike = !list->empty() && std::ranges::all_of(*list, [&](const json& one) {
    return one == list->front();
  });
  fields.require(alike, key, "has another value for some layers, which is not built");
  if (alike) config[key] = json(list->front());
}

/// With one more MLP that every token passes.
void read_hunyuan_moe(const json& config, Fields& fields, ModelConfig& out) {
  json plain = config;
  for (const char* key : {"num_experts", "moe_topk"}) one_for_all_layers(plain, fields, key);
  Fields part(plain, {}, "");
  read_hunyuan(plain, part, out);
  read_experts(part,
               {.count_default = 1,
                .inner = "intermediate_size",
                .per_token = 1,
                .balance = 0,
                .per_token_key = "moe_topk"},
               out);
  fields.inherit(part);
  out.experts.balance = 0;  // its class has no auxiliary loss
  out.experts.normalized = true;
  out.experts.shared_inner = out.intermediate_size;
  out.names.router = "mlp.gate.wg";
  out.names.shared = "mlp.shared_mlp";
}

/// Llama with one name for each bias.
void read_internlm3(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 32768, .head_dim = 128, .norm_eps = 1e-5, .kv_heads = 2}, out);
  all_biases(fields, fields.absent("qkv_bias") ? "attention_bias" : "qkv_bias", out);
  out.mlp_bias = fields.flag(fields.absent("bias") ? "mlp_bias" : "bias", false);
  fields.require(out.mlp_bias == out.o_bias, "bias",
                 "is not qkv_bias; transformers' InternLM3 has all biases or none");
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

/// Granite with norms on both sides; its factor multiplies the logits.
void read_hyperclovax(const json& config, Fields& fields, ModelConfig& out) {
  read_granite(config, fields, out);
  out.logits_scale = fields.number("logits_scaling", 1, kTiny, kFactorMax);
  if (fields.absent("attention_multiplier")) out.attention_multiplier.reset();
  out.post_norms = fields.flag("use_post_norm", true);
  out.names.post_attention_norm = "post_norm1";
  out.names.post_mlp_norm = "post_norm2";
}

void read_smollm3(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 32768, .theta = 2e6, .tied = true, .padding = 128004, .kv_heads = 4},
             out);
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
  read_windows(
      config, fields, read_window(config, fields, 0),
      [&](int64_t layer) { return out.no_rope[layer]; }, out);
}

void read_seed_oss(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 524288, .head_dim = 128, .padding = 1, .kv_heads = 8},
             out);
  out.qkv_bias = fields.flag("attention_bias", true);
  out.o_bias = fields.flag("attention_out_bias", false);
  out.mlp_bias = fields.flag("mlp_bias", false);
  out.dropout.attention = fields.probability("attention_dropout", 0.1);
  out.dropout.residual = fields.probability("residual_dropout", 0.1);
  no_slices(fields);
}

void read_phi3(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 4096, .norm_eps = 1e-5, .partial_rotary = 1, .padding = 32000}, out);
  out.qkv_bias = false;
  out.fused_qkv = out.fused_gate_up = true;
  out.dropout.residual = fields.probability("resid_pdrop", 0);
  read_windows(config, fields, read_window(config, fields, 0), every_layer, out);
}

void read_cwm(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(
      config, fields,
      {.max_position = 131072, .head_dim = 128, .norm_eps = 1e-5, .theta = 1e6, .kv_heads = 8},
      out);
  out.qkv_bias = false;
  if (fields.absent("rope_parameters") && fields.absent("rope_scaling"))
    out.rope = {
        .scaling = RopeConfig::Scaling::Llama3, .theta = 1e6, .factor = 16, .original_max = 8192};
  read_windows(
      config, fields, read_window(config, fields, 8192),
      [](int64_t layer) { return layer % 4 != 0; }, out);
}

void read_ernie(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 131072,
              .head_dim = 128,
              .norm_eps = 1e-5,
              .theta = 500000,
              .tied = true,
              .padding = 0,
              .kv_heads = 2},
             out);
  all_biases(fields, "use_bias", out);
  out.mlp_bias = out.o_bias;
  out.rope_in_pairs = true;
}

/// Probabilities, corrected for the choice alone.
void read_ernie_moe(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 131072,
              .norm_eps = 1e-5,
              .theta = 500000,
              .tied = true,
              .padding = 0,
              .kv_heads = 4},
             out);
  out.dropout.attention = 0;  // transformers reads none
  out.qkv_bias = false;
  out.rope_in_pairs = true;
  fields.require(!fields.flag("use_bias", false), "use_bias",
                 "is true; biases of experts are not built");
  read_experts(fields,
               {.count = "moe_num_experts",
                .count_default = 64,
                .inner_default = 1536,
                .per_token = 6,
                .per_token_key = "moe_k"},
               out);
  no_auxiliary_loss(fields);
  ExpertsConfig& experts = out.experts;
  experts.corrected = experts.normalized = experts.exact_router = true;
  experts.least_sum = fields.number("moe_norm_min", 1e-12, 0, 1);
  experts.shared_inner = fields.whole("moe_num_shared_experts", 0, kExpertsMax, 2) * experts.inner;
  const int64_t every = fields.positive("moe_layer_interval", kIndexMax, 1);
  const int64_t first = fields.whole("moe_layer_start_index", 0, kLayersMax, 1);
  const int64_t last = fields.whole("moe_layer_end_index", -1, kLayersMax, -1);
  experts.dense.assign(static_cast<size_t>(out.num_layers), false);
  for (int64_t layer = 0; layer < out.num_layers; ++layer)
    experts.dense[layer] = (layer + 1) % every != 0 || layer < first || (last >= 0 && layer > last);
  out.names.correction = "mlp.moe_statics.e_score_correction_bias";
  out.names.shared = "mlp.shared_experts";
}

void read_helium(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 4096,
              .head_dim = 128,
              .norm_eps = 1e-8,
              .theta = 100000,
              .padding = 3,
              .kv_heads = 20},
             out);
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
  read_shape(config, fields, {.norm_eps = 1e-5, .padding = 1}, out);
  all_biases(fields, "attention_bias", out);
  out.norm = NormKind::RmsOnce;
  out.pre_norms = false;
  out.post_norms = out.qk_norm = out.qk_norm_whole = true;
}

/// Layers with a window keep the unscaled rope.
void read_olmo3(const json& config, Fields& fields, ModelConfig& out) {
  Defaults defaults{.norm_eps = 1e-5, .theta = 500000, .padding = 1};
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

/// Attention of EXAONE 4.0 and what follows it: full layers have no rope.
void read_exaone_attention(const json& config, Fields& fields, const Defaults& defaults,
                           ModelConfig& out) {
  read_shape(config, fields, defaults, out);
  out.qkv_bias = false;
  out.qk_norm = true;
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

void read_exaone4(const json& config, Fields& fields, ModelConfig& out) {
  read_exaone_attention(config, fields, {.norm_eps = 1e-5, .kv_heads = 32}, out);
  out.pre_norms = false;
  out.post_norms = true;
}

void read_exaone_moe(const json& config, Fields& fields, ModelConfig& out) {
  read_exaone_attention(config, fields, {.norm_eps = 1e-5, .padding = 0, .kv_heads = 32}, out);
  read_sigmoid_experts(fields,
                       {.experts = {.count_default = 64, .inner_default = 1024, .per_token = 8},
                        .scale = 2.5,
                        .shared = "num_shared_experts"},
                       out);
  read_first_layers(config, fields, 1, out);
  out.names.correction = "mlp.e_score_correction_bias";
}

void read_glm_shape(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 131072,
              .head_dim = 128,
              .norm_eps = 1.5625e-7,
              .partial_rotary = 0.5,
              .padding = 151329,
              .kv_heads = 2},
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

// ---- mixtures of experts

/// Qwen: which layers keep a plain MLP.
void read_plain_layers(const json& config, Fields& fields, ModelConfig& out) {
  const int64_t every = fields.positive("decoder_sparse_step", kIndexMax, 1);
  out.experts.dense.assign(static_cast<size_t>(out.num_layers), false);
  for (int64_t layer = 0; layer < out.num_layers; ++layer)
    out.experts.dense[layer] = (layer + 1) % every != 0;
  if (fields.absent("mlp_only_layers")) return;
  const json& plain = config["mlp_only_layers"];
  const bool list = plain.is_array() && std::ranges::all_of(plain, [](const json& one) {
                      return one.is_number_integer() && one >= 0 && one < kLayersMax;
                    });
  fields.require(list, "mlp_only_layers", "is not a list of layers' numbers");
  for (const json& one : list ? plain : json::array())
    if (one < out.num_layers) out.experts.dense[one.get<size_t>()] = true;
}

void read_qwen2_moe(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 32768, .kv_heads = 16}, out);
  out.qkv_bias = fields.flag("qkv_bias", true);
  const int64_t window =
      fields.flag("use_sliding_window", false) ? read_window(config, fields, 4096) : 0;
  const int64_t last = window > 0 ? fields.whole("max_window_layers", 0, INT64_MAX, 28) : 0;
  read_windows(
      config, fields, window, [last](int64_t layer) { return layer < last && layer % 2 == 0; },
      out);
  read_experts(fields, {.count_default = 60, .inner_default = 1408, .per_token = 4}, out);
  read_plain_layers(config, fields, out);
  out.experts.shared_inner = fields.positive("shared_expert_intermediate_size", kInnerMax, 5632);
  out.experts.shared_scaled = true;
  out.experts.normalized = fields.flag("norm_topk_prob", false);
}

void read_qwen3_moe(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 32768, .kv_heads = 4}, out);
  all_biases(fields, "attention_bias", out);
  out.qk_norm = true;
  const int64_t window =
      fields.flag("use_sliding_window", false) ? read_window(config, fields, 4096) : 0;
  read_windows(config, fields, window, every_layer, out);
  read_experts(fields, {.count_default = 128, .inner_default = 768, .per_token = 8}, out);
  read_plain_layers(config, fields, out);
  out.experts.normalized = fields.flag("norm_topk_prob", false);
}

void read_mixtral(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 131072, .norm_eps = 1e-5, .theta = 1e6, .kv_heads = 8}, out);
  out.qkv_bias = false;
  read_windows(config, fields, read_window(config, fields, 0), every_layer, out);
  read_experts(fields, {.count = "num_local_experts", .inner = "intermediate_size"}, out);
  out.experts.normalized = true;
  out.experts.rounds_weights = false;
  out.names.router = "block_sparse_moe.gate";
  out.names.experts = "block_sparse_moe.experts";
  out.names.expert_gate = "w1";
  out.names.expert_up = "w3";
  out.names.expert_down = "w2";
  fields.require(fields.number("router_jitter_noise", 0, 0, kFactorMax) == 0, "router_jitter_noise",
                 "is not 0; noise on what the router reads is not built");
}

void read_olmoe(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 4096, .norm_eps = 1e-5, .padding = 1}, out);
  all_biases(fields, "attention_bias", out);
  out.qk_norm = out.qk_norm_whole = true;
  read_experts(fields,
               {.count_default = 64, .inner = "intermediate_size", .per_token = 8, .balance = 0.01},
               out);
  out.experts.normalized = fields.flag("norm_topk_prob", false);
  fields.require(fields.absent("clip_qkv"), "clip_qkv",
                 "is not null; clipped queries, keys and values are not built");
}

/// Granite with experts, whose weights lie in one tensor each.
void read_granitemoe(const json& config, Fields& fields, ModelConfig& out) {
  read_granite(config, fields, out);
  read_experts(fields, {.count = "num_local_experts", .inner = "intermediate_size"}, out);
  out.experts.normalized = out.experts.stacked = true;
  out.names.router = "block_sparse_moe.router.layer";
  out.names.stacked_up = "block_sparse_moe.input_linear.weight";
  out.names.stacked_down = "block_sparse_moe.output_linear.weight";
}

/// Its MLP, or the expert that every token passes.
void read_granitemoeshared(const json& config, Fields& fields, ModelConfig& out) {
  read_granitemoe(config, fields, out);
  out.experts.shared_inner = fields.whole("shared_intermediate_size", 0, kInnerMax, 0);
  out.names.shared_gate_up = "shared_mlp.input_linear";
  out.names.shared = "shared_mlp";
  out.names.shared_down = "output_linear";
}

/// Granite 4.0 without its mamba layers.
void read_granitemoehybrid(const json& config, Fields& fields, ModelConfig& out) {
  const bool has_experts = fields.whole("num_local_experts", 0, kExpertsMax, 8) > 0;
  if (has_experts) {
    read_granitemoeshared(config, fields, out);
    out.experts.shared_inner = fields.positive("shared_intermediate_size", kInnerMax, 1024);
  } else {
    read_granite(config, fields, out);
    out.intermediate_size = fields.positive("shared_intermediate_size", kInnerMax, 1024);
    out.fused_gate_up = true;
    out.names.gate_up = "shared_mlp.input_linear";
    out.names.down = "shared_mlp.output_linear";
  }
  const json types = config.value("layer_types", json());
  const bool attends = types.is_array() && static_cast<int64_t>(types.size()) == out.num_layers &&
                       std::ranges::all_of(types, [](const json& one) {
                         return one == "attention" || one == "full_attention";
                       });
  fields.require(attends, "layer_types",
                 "does not say \"attention\" for every layer; mamba layers are not built");
  const std::string positions = fields.text("position_embedding_type", "nope");
  out.no_rope.assign(static_cast<size_t>(out.num_layers), positions != "rope");
}

void read_gpt_oss(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(
      config, fields,
      {.max_position = 131072, .head_dim = 64, .norm_eps = 1e-5, .theta = 150000, .kv_heads = 8},
      out);
  if (fields.absent("rope_parameters") && fields.absent("rope_scaling"))
    out.rope = read_rope_object({{"rope_type", "yarn"},
                                 {"factor", 32.0},
                                 {"beta_fast", 32.0},
                                 {"beta_slow", 1.0},
                                 {"truncate", false},
                                 {"original_max_position_embeddings", 4096}},
                                "rope_parameters", out.rope.theta, fields, out);
  all_biases(fields, "attention_bias", true, out);
  out.sinks = true;
  read_windows(
      config, fields, read_window(config, fields, 128),
      [](int64_t layer) { return layer % 2 == 0; }, out);
  read_experts(fields,
               {.count = "num_local_experts",
                .count_default = 128,
                .inner = "intermediate_size",
                .per_token = 4,
                .balance = 0.9},
               out);
  out.experts.normalized = out.experts.alternates = out.experts.router_bias = true;
  out.experts.clamp = fields.number("swiglu_limit", 7.0, kTiny, kFactorMax);
  out.experts.alpha = fields.number("swiglu_alpha", 1.702, kTiny, kFactorMax);
  out.names.router = "mlp.router";
}

// ---- the gated delta rule

/// Which layers have it: layer_types, a list of linear_attention and full_attention, else all but each
/// full_attention_interval-th.
void read_delta_layers(const json& config, Fields& fields, ModelConfig& out) {
  const auto every = but_each(fields.positive("full_attention_interval", kIndexMax, 4));
  const bool listed = !fields.absent("layer_types");
  const json types = listed ? config["layer_types"] : json::array();
  const bool fits = !listed || (types.is_array() && std::ssize(types) == out.num_layers);
  fields.require(fits, "layer_types", "is not a list with one entry per layer");
  out.delta.layers.assign(static_cast<size_t>(out.num_layers), false);
  for (int64_t layer = 0; fits && layer < out.num_layers; ++layer) {
    const bool known =
        !listed || types[layer] == "linear_attention" || types[layer] == "full_attention";
    fields.require(
        known, "layer_types",
        "has " + (known ? "" : json_brief(types[layer])) + "; built are full and linear attention");
    out.delta.layers[layer] = listed ? types[layer] == "linear_attention" : every(layer);
  }
}

/// Full attention with gates, and the delta rule. `kv_heads`: where the file says nothing.
void read_hybrid(const json& config, int64_t kv_heads, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 32768, .head_dim = 256, .partial_rotary = 0.25, .kv_heads = kv_heads},
             out);
  all_biases(fields, "attention_bias", out);
  out.norm = NormKind::RmsPlusOne;
  out.qk_norm = out.output_gate = true;
  fields.require(fields.flag("attn_output_gate", true), "attn_output_gate",
                 "is false; transformers' class has the gate in any case");
  out.delta = {.key_heads = fields.positive("linear_num_key_heads", kWidthMax, 16),
               .value_heads = fields.positive("linear_num_value_heads", kWidthMax, 32),
               .key_dim = fields.positive("linear_key_head_dim", kWidthMax, 128),
               .value_dim = fields.positive("linear_value_head_dim", kWidthMax, 128),
               .kernel = fields.positive("linear_conv_kernel_dim", kDeltaChunk, 4)};
  fields.require(out.delta.value_heads % out.delta.key_heads == 0, "linear_num_value_heads",
                 "is not a multiple of linear_num_key_heads");
  const auto narrow = [](int64_t heads, int64_t dim) { return heads <= kWidthMax / dim; };
  fields.require(narrow(out.delta.key_heads, out.delta.key_dim), "linear_key_head_dim",
                 "times linear_num_key_heads is above " + std::to_string(kWidthMax));
  fields.require(narrow(out.delta.value_heads, out.delta.value_dim), "linear_value_head_dim",
                 "times linear_num_value_heads is above " + std::to_string(kWidthMax));
  fields.require(out.activation == Activation::Silu, "hidden_act",
                 "is not \"silu\", the only one built for this family");
  read_delta_layers(config, fields, out);
}

/// Rows have no pictures, so the three positions of mrope are one, and it is the plain rope.
void plain_rope(json& text) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto rope = text.find(key);
    if (rope == text.end() || !rope->is_object() || !rope->contains("mrope_section")) continue;
    rope->erase("mrope_section");
    rope->erase("mrope_interleaved");
    for (const char* type : {"type", "rope_type"})
      if (rope->value(type, json()) == "mrope") (*rope)[type] = "default";
  }
}

void read_qwen3_5(const json& config, Fields& fields, ModelConfig& out) {
  read_hybrid(config, 4, fields, out);
}

void read_qwen_shared_experts(Fields& fields, int64_t count, int64_t per_token, ModelConfig& out) {
  read_experts(fields, {.count_default = count, .inner_default = 512, .per_token = per_token}, out);
  out.experts.shared_inner = fields.positive("shared_expert_intermediate_size", kInnerMax, 512);
  out.experts.shared_scaled = true;
}

void read_qwen3_next(const json& config, Fields& fields, ModelConfig& out) {
  read_hybrid(config, 2, fields, out);
  out.delta.by_group = true;
  read_qwen_shared_experts(fields, 512, 10, out);
  read_plain_layers(config, fields, out);
  out.experts.normalized = fields.flag("norm_topk_prob", true);
}

/// Latent attention, and experts that every token passes as well.
void read_deepseek_v2(const json& config, Fields& fields, ModelConfig& out) {
  read_latent(config, fields, {}, out);
  out.mlp_bias = fields.flag("mlp_bias", false);
  fields.require(!out.mlp_bias, "mlp_bias", "is true; biases of experts are not built");
  no_slices(fields);

  fields.require(!fields.absent("num_experts_per_tok"), "num_experts_per_tok",
                 "is missing; expected the number of experts that a token passes");
  read_experts(fields, {.count = "n_routed_experts", .count_default = 64, .inner_default = 1407},
               out);
  out.experts.balance = 0;  // its class has no auxiliary loss
  out.experts.rounds_weights = false;
  out.experts.exact_router = true;
  out.experts.scale = fields.number("routed_scaling_factor", 1, kTiny, kFactorMax);
  out.experts.shared_inner =
      fields.positive("n_shared_experts", kExpertsMax, 2) * out.experts.inner;
  out.names.shared = "mlp.shared_experts";
  const int64_t first = fields.whole("first_k_dense_replace", 0, kLayersMax, 0);
  out.experts.dense.assign(static_cast<size_t>(out.num_layers), false);
  for (int64_t layer = 0; layer < std::min(first, out.num_layers); ++layer)
    out.experts.dense[layer] = true;
  const std::string method = fields.text("topk_method", "greedy");
  fields.require(method == "greedy", "topk_method",
                 "is \"" + method + "\"; built is greedy, without groups of experts");
}

// ---- Gemma

void read_gemma_shape(const json& config, Fields& fields, Defaults defaults, ModelConfig& out) {
  defaults.head_dim = 256;
  defaults.tied = true;
  defaults.activation = "gelu_pytorch_tanh";
  defaults.padding = 0;
  read_shape(config, fields, defaults, out);
  // A released config says gelu and means the tanh form; so does transformers.
  if (out.activation == Activation::Gelu) out.activation = Activation::GeluTanh;
  all_biases(fields, "attention_bias", out);
  out.norm = NormKind::RmsPlusOne;
  out.embedding_scale = std::sqrt(static_cast<double>(out.hidden_size));
  out.rounds_embedding_scale = true;
  fields.require(!fields.flag("use_bidirectional_attention", false), "use_bidirectional_attention",
                 "is true; this engine trains causal models");
}

void read_gemma(const json& config, Fields& fields, ModelConfig& out) {
  read_gemma_shape(config, fields, {.max_position = 8192, .kv_heads = 16}, out);
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
  read_gemma_shape(config, fields,
                   {.max_position = 8192, .activation_key = "hidden_activation", .kv_heads = 4},
                   out);
  const bool no_logits = is_null(config, "final_logit_softcapping");
  const bool no_scores = is_null(config, "attn_logit_softcapping");
  read_gemma_layers(fields, no_logits ? 0 : 30, no_scores ? 0 : 50, out);
  read_windows(config, fields, read_window(config, fields, 4096), but_each(2), out);
}

/// Gemma 2 without the norms behind attention and the MLP.
void read_vaultgemma(const json& config, Fields& fields, ModelConfig& out) {
  read_gemma2(config, fields, out);
  out.post_norms = false;
}

void read_gemma3(const json& config, Fields& fields, ModelConfig& out) {
  read_gemma_shape(config, fields,
                   {.max_position = 131072,
                    .rope_by_layer_type = true,
                    .activation_key = "hidden_activation",
                    .kv_heads = 4},
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

void no_head_layer_norm(Fields& fields, const char* key) {
  fields.require(!fields.flag(key, false), key, "is true; a LayerNorm for each head is not built");
}

void read_starcoder2(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 4096,
              .norm_eps = 1e-5,
              .norm_eps_key = "norm_epsilon",
              .tied = true,
              .activation = "gelu_pytorch_tanh",
              .kv_heads = 2},
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
              .partial_rotary = 0.25,
              .kv_heads = 32},
             out);
  out.norm = NormKind::Layer;
  out.norm_bias = true;
  out.qkv_bias = fields.flag("use_qkv_bias", false);
  out.parallel = out.shared_norm = fields.flag("use_parallel_residual", false);
  no_head_layer_norm(fields, "qk_layernorm");
  fields.require(fields.probability("hidden_dropout", 0) == 0, "hidden_dropout",
                 "is not 0; dropout on the MLP alone is not built");
}

void read_jais2(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 8192,
              .norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_eps",
              .activation = "relu2"},
             out);
  out.norm = NormKind::Layer;
  out.norm_bias = true;
  all_biases(fields, "attention_bias", true, out);
  out.mlp_bias = fields.flag("mlp_bias", true);
  out.gated = false;
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

/// OLMo 1: a LayerNorm without parameters.
void read_olmo(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.norm_eps = 1e-5, .norm_eps_key = nullptr, .padding = 1}, out);
  all_biases(fields, "attention_bias", out);
  out.norm = NormKind::Layer;
  out.norm_weight = false;
  fields.require(fields.absent("clip_qkv"), "clip_qkv",
                 "is not null; clipped queries, keys and values are not built");
}

// ---- attention and MLP side by side

void read_cohere_shape(const json& config, Fields& fields, double theta, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 8192,
              .norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_eps",
              .theta = theta,
              .tied = true,
              .padding = 0},
             out);
  all_biases(fields, "attention_bias", out);
  out.norm = NormKind::Layer;
  out.parallel = out.shared_norm = out.rope_in_pairs = true;
  out.logits_scale = fields.number("logit_scale", 0.0625, kTiny, kFactorMax);
}

void read_cohere(const json& config, Fields& fields, ModelConfig& out) {
  read_cohere_shape(config, fields, 500000, out);
  no_head_layer_norm(fields, "use_qk_norm");
}

/// Only layers with a window have positions.
void read_cohere2(const json& config, Fields& fields, ModelConfig& out) {
  read_cohere_shape(config, fields, 10000, out);
  const int64_t every = fields.positive("sliding_window_pattern", kIndexMax, 4);
  read_windows(config, fields, read_window(config, fields, 4096), but_each(every), out);
  out.no_rope.assign(static_cast<size_t>(out.num_layers), false);
  for (int64_t layer = 0; layer < out.num_layers; ++layer)
    out.no_rope[layer] = out.windows[layer] == 0;
}

void read_gpt_neox(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.kv_heads_key = nullptr,
              .norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_eps",
              .theta_key = "rotary_emb_base",
              .partial_rotary = 0.25,
              .partial_rotary_key = "rotary_pct",
              .activation = "gelu",
              .has_padding = false},
             out);
  out.norm = NormKind::Layer;
  out.norm_bias = out.mlp_bias = true;
  all_biases(fields, "attention_bias", true, out);
  out.parallel = fields.flag("use_parallel_residual", true);
  out.fused_qkv = out.qkv_by_group = true;
  out.gated = false;
  out.dropout.embedding = out.dropout.residual = fields.probability("hidden_dropout", 0);
  out.names = {.base = "gpt_neox.",
               .embedding = "embed_in",
               .norm = "final_layer_norm",
               .head = "embed_out",
               .attention = "attention",
               .qkv = "query_key_value",
               .o = "dense",
               .up = "mlp.dense_h_to_4h",
               .down = "mlp.dense_4h_to_h"};
}

void no_tied_bias(Fields& fields, const ModelConfig& out) {
  fields.require(!out.tied, "tie_word_embeddings", "is true; a tied head with a bias is not built");
}

void read_phi(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_eps",
              .partial_rotary = 0.5,
              .activation = "gelu_new"},
             out);
  out.norm = NormKind::Layer;
  out.norm_bias = out.o_bias = out.mlp_bias = out.head_bias = true;
  out.parallel = out.shared_norm = true;
  out.gated = false;
  out.dropout.embedding = fields.probability("embd_pdrop", 0);
  out.dropout.residual = fields.probability("resid_pdrop", 0);
  out.names.norm = "final_layernorm";
  out.names.o = "dense";
  out.names.up = "mlp.fc1";
  out.names.down = "mlp.fc2";
  no_head_layer_norm(fields, "qk_layernorm");
  no_tied_bias(fields, out);
}

void read_gptj(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.hidden_key = "n_embd",
              .layers_key = "n_layer",
              .heads_key = "n_head",
              .kv_heads_key = nullptr,
              .inner_key = "n_inner",
              .max_position_key = "n_positions",
              .inner_factor = 4,
              .norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_epsilon",
              .activation_key = "activation_function",
              .activation = "gelu_new",
              .has_padding = false},
             out);
  // Null: rotary angles over the whole width, which no released model has.
  const int64_t rotated = fields.positive("rotary_dim", kWidthMax, 64);
  fields.require(!is_null(config, "rotary_dim") && rotated <= out.head_dim && rotated % 2 == 0,
                 "rotary_dim", "is not an even number of elements of a head");
  out.rotary_dim = rotated;
  out.norm = NormKind::Layer;
  out.norm_bias = out.mlp_bias = out.head_bias = true;
  out.qkv_bias = false;
  out.parallel = out.shared_norm = out.rope_in_pairs = true;
  out.gated = false;
  out.dropout = {.embedding = fields.probability("embd_pdrop", 0),
                 .attention = fields.probability("attn_pdrop", 0),
                 .residual = fields.probability("resid_pdrop", 0)};
  out.names = {.base = "transformer.",
               .embedding = "wte",
               .layers = "h",
               .norm = "ln_f",
               .norm1 = "ln_1",
               .attention = "attn",
               .o = "out_proj",
               .up = "mlp.fc_in",
               .down = "mlp.fc_out"};
  no_tied_bias(fields, out);
}

/// Three generations: 7B (one key head, one norm), 40B (key heads, two norms), and the first, in
/// sequence.
void read_falcon(const json& config, Fields& fields, ModelConfig& out) {
  const bool newer = fields.flag("new_decoder_architecture", false);
  const bool one_head = !newer && fields.flag("multi_query", true);
  read_shape(config, fields,
             {.kv_heads_key = one_head ? nullptr : "num_kv_heads",
              .inner_key = "ffn_hidden_size",
              .inner_factor = 4,
              .norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_epsilon",
              .tied = true,
              .activation_key = "activation",
              .activation = "gelu",
              .has_padding = false},
             out);
  if (one_head) out.num_kv_heads = 1;
  out.norm = NormKind::Layer;
  out.norm_bias = true;
  out.qkv_bias = out.o_bias = out.mlp_bias = fields.flag("bias", false);
  out.fused_qkv = out.qkv_by_group = true;
  out.gated = false;
  out.parallel = newer || fields.flag("parallel_attn", true);
  const int64_t norms = fields.positive("num_ln_in_parallel_attn", 2, newer ? 2 : 1);
  fields.require(norms == 1 || newer, "num_ln_in_parallel_attn",
                 "is 2; only new_decoder_architecture has two norms side by side");
  out.shared_norm = out.parallel && norms == 1;
  out.names = {.base = "transformer.",
               .embedding = "word_embeddings",
               .layers = "h",
               .norm = "ln_f",
               .attention = "self_attention",
               .qkv = "query_key_value",
               .o = "dense",
               .up = "mlp.dense_h_to_4h",
               .down = "mlp.dense_4h_to_h"};
  if (norms == 2) out.names.norm1 = "ln_attn", out.names.norm2 = "ln_mlp";
  fields.require(!newer || fields.flag("parallel_attn", true), "parallel_attn",
                 "is false, which new_decoder_architecture does not have");
  fields.require(!fields.flag("alibi", false), "alibi", "is true; alibi positions are not built");
  fields.require(fields.probability("hidden_dropout", 0) == 0, "hidden_dropout",
                 "is not 0; dropout on the sum of attention and MLP is not built");
  fields.require(out.parallel || out.dropout.attention == 0, "attention_dropout",
                 "is not 0; Falcon drops also what attention adds in sequence, which is not built");
}

// ---- learned positions

/// Position 0 is the third row of its table.
void read_opt(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.kv_heads_key = nullptr,
              .inner_key = "ffn_dim",
              .norm_eps = 1e-5,
              .norm_eps_key = nullptr,
              .learned_positions = true,
              .tied = true,
              .activation_key = "activation_function",
              .activation = "relu",
              .padding = 1},
             out);
  out.first_position = 2;
  out.norm = NormKind::Layer;
  out.norm_weight = out.norm_bias = fields.flag("layer_norm_elementwise_affine", true);
  out.qkv_bias = out.o_bias = out.mlp_bias = fields.flag("enable_bias", true);
  out.gated = false;
  out.dropout.residual = fields.probability("dropout", 0.1);
  out.names = {.base = "model.decoder.",
               .positions = "embed_positions",
               .norm = "final_layer_norm",
               .norm1 = "self_attn_layer_norm",
               .o = "out_proj",
               .norm2 = "final_layer_norm",
               .up = "fc1",
               .down = "fc2"};
  fields.require(fields.flag("do_layer_norm_before", true), "do_layer_norm_before",
                 "is false; norms of the sums (opt-350m) are not built");
  fields.require(fields.absent("word_embed_proj_dim") ||
                     fields.positive("word_embed_proj_dim", kWidthMax) == out.hidden_size,
                 "word_embed_proj_dim",
                 "is not hidden_size; projected embeddings (opt-350m) are not built");
  fields.require(!fields.flag("_remove_final_layer_norm", false), "_remove_final_layer_norm",
                 "is true; a model without its last norm is not built");
  fields.require(fields.probability("layerdrop", 0) == 0, "layerdrop",
                 "is not 0; dropping whole layers is not built");
}

/// attention_types, [[["global", "local"], 6]]: which layers have the window, each list so many times.
void read_gpt_neo_windows(const json& config, Fields& fields, ModelConfig& out) {
  const int64_t window = fields.positive("window_size", kIndexMax, 256);
  json types = json::array({json::array({json::array({"global", "local"}), 12})});
  if (!fields.absent("attention_types")) types = config["attention_types"];
  bool known = types.is_array();
  for (const json& part : types) {
    known = known && part.is_array() && part.size() == 2 && part[0].is_array() &&
            part[1].is_number_unsigned() && part[1].get<uint64_t>() <= kLayersMax;
    if (!known) break;
    for (uint64_t i = 0; i < part[1].get<uint64_t>(); ++i) {
      for (const json& type : part[0]) {
        known = known && (type == "global" || type == "local") &&
                static_cast<int64_t>(out.windows.size()) < out.num_layers;
        if (!known) break;
        out.windows.push_back(type == "local" ? window : 0);
      }
    }
  }
  fields.require(known && static_cast<int64_t>(out.windows.size()) == out.num_layers,
                 "attention_types",
                 "does not name global or local attention for each of num_layers layers");
  out.windows.resize(static_cast<size_t>(out.num_layers));
}

/// Scores are not scaled.
void read_gpt_neo(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.layers_key = "num_layers",
              .heads_key = "num_heads",
              .kv_heads_key = nullptr,
              .inner_factor = 4,
              .norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_epsilon",
              .learned_positions = true,
              .tied = true,
              .activation_key = "activation_function",
              .activation = "gelu_new",
              .has_padding = false},
             out);
  read_gpt_neo_windows(config, fields, out);
  out.scale_attention = false;
  out.norm = NormKind::Layer;
  out.norm_bias = out.o_bias = out.mlp_bias = true;
  out.qkv_bias = false;
  out.gated = false;
  out.dropout.embedding = fields.probability("embed_dropout", 0);
  out.dropout.residual = fields.probability("resid_dropout", 0);
  out.names = {.base = "transformer.",
               .embedding = "wte",
               .positions = "wpe",
               .layers = "h",
               .norm = "ln_f",
               .norm1 = "ln_1",
               .attention = "attn.attention",
               .o = "out_proj",
               .norm2 = "ln_2",
               .up = "mlp.c_fc",
               .down = "mlp.c_proj"};
}

/// GPT-2's layer with one key head for all queries, or with a group of rows for each head.
void read_gpt_bigcode(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.hidden_key = "n_embd",
              .layers_key = "n_layer",
              .heads_key = "n_head",
              .kv_heads_key = nullptr,
              .inner_key = "n_inner",
              .max_position_key = "n_positions",
              .inner_factor = 4,
              .max_position = 1024,
              .norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_epsilon",
              .learned_positions = true,
              .tied = true,
              .activation_key = "activation_function",
              .activation = "gelu_pytorch_tanh",
              .has_padding = false},
             out);
  if (fields.flag("multi_query", true)) out.num_kv_heads = 1;
  out.scale_attention = fields.flag("scale_attn_weights", true);
  // They ask for fp32 probabilities, which are fp32 here anyway.
  for (const char* key : {"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"})
    fields.flag(key, true);
  fields.require(!fields.flag("add_cross_attention", false), "add_cross_attention",
                 "is true; an encoder beside the model is not built");
  out.norm = NormKind::Layer;
  out.norm_bias = out.qkv_bias = out.o_bias = out.mlp_bias = true;
  out.fused_qkv = out.qkv_by_group = true;
  out.gated = false;
  out.dropout = {.embedding = fields.probability("embd_pdrop", 0.1),
                 .attention = fields.probability("attn_pdrop", 0.1),
                 .residual = fields.probability("resid_pdrop", 0.1)};
  out.names = {.base = "transformer.",
               .embedding = "wte",
               .positions = "wpe",
               .layers = "h",
               .norm = "ln_f",
               .norm1 = "ln_1",
               .attention = "attn",
               .qkv = "c_attn",
               .o = "c_proj",
               .norm2 = "ln_2",
               .up = "mlp.c_fc",
               .down = "mlp.c_proj"};
}

void read_gpt2(const json&, Fields& fields, ModelConfig& out) {
  out.block = Block::Gpt2;
  out.learned_positions = true;
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

// ---- the text part of a model with a vision part

using Read = void (*)(const json& config, Fields& fields, ModelConfig& out);

/// Reads what lies under text_config, or beside the vision part in older files. `absent`: what
/// transformers' class means where the file says nothing. Ties are those of the whole model, if it
/// says so.
void read_text_part(const json& config, Fields& fields, Read read, const char* text_type,
                    const json& absent, ModelConfig& out) {
  const bool inside = config.contains("text_config");
  json text = absent;
  if (inside && !config["text_config"].is_object())
    return fields.require(false, "text_config", "is not an object");
  text.update(inside ? config["text_config"] : config);
  if (const auto tied = config.find("tie_word_embeddings"); tied != config.end())
    text["tie_word_embeddings"] = *tied;
  Fields part(text, {}, inside ? "text_config." : "");
  if (inside) {
    const std::string type = part.text("model_type", text_type);
    part.require(type == text_type, "model_type", "is \"" + type + "\"; built is " + text_type);
  }
  plain_rope(text);
  read(text, part, out);
  out.is_text_part = true;
  fields.inherit(part);
}

/// A causal model, head and all, is a module of the whole one.
void under_language_model(ModelConfig& out) {
  out.names.base = "language_model.model.";
  out.names.head = "language_model.lm_head";
}

void read_gemma3_part(const json& config, Fields& fields, ModelConfig& out) {
  read_text_part(config, fields, read_gemma3, "gemma3_text",
                 {{"vocab_size", 262208},
                  {"hidden_size", 2304},
                  {"intermediate_size", 9216},
                  {"num_hidden_layers", 26},
                  {"num_attention_heads", 8},
                  {"num_key_value_heads", 4}},
                 out);
  under_language_model(out);
}

void read_mistral3_part(const json& config, Fields& fields, ModelConfig& out) {
  read_text_part(config, fields, read_mistral, "mistral", json::object(), out);
  under_language_model(out);
}

template <const char* kType>
void read_qwen2_vl_part(const json& config, Fields& fields, ModelConfig& out) {
  read_text_part(config, fields, read_qwen2, kType,
                 {{"num_key_value_heads", 8},
                  {"rms_norm_eps", 1e-5},
                  {"rope_theta", 1e6},
                  {"max_window_layers", 80}},
                 out);
}

void read_qwen3_vl_part(const json& config, Fields& fields, ModelConfig& out) {
  read_text_part(
      config, fields, read_qwen3, "qwen3_vl_text",
      {{"num_key_value_heads", 32}, {"max_position_embeddings", 128000}, {"rope_theta", 500000}},
      out);
  out.names.base = "model.language_model.";
}

void read_qwen3_5_part(const json& config, Fields& fields, ModelConfig& out) {
  read_text_part(config, fields, read_qwen3_5, "qwen3_5_text",
                 {{"vocab_size", 248320},
                  {"hidden_size", 4096},
                  {"intermediate_size", 12288},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 16},
                  {"num_key_value_heads", 4}},
                 out);
  out.names.base = "model.language_model.";
}

void read_llava_part(const json& config, Fields& fields, ModelConfig& out) {
  read_text_part(config, fields, read_llama, "llama",
                 {{"vocab_size", 32000},
                  {"hidden_size", 4096},
                  {"intermediate_size", 11008},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 32}},
                 out);
  under_language_model(out);
}

void read_smolvlm_part(const json& config, Fields& fields, ModelConfig& out) {
  read_text_part(config, fields, read_llama, "llama", {{"rms_norm_eps", 1e-5}}, out);
  out.names.base = "model.text_model.";
}

constexpr char kQwen2VlText[] = "qwen2_vl_text", kQwen25VlText[] = "qwen2_5_vl_text";

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
     "`partial_rotary_factor`, `use_qkv_bias`, `use_parallel_residual`", read_stablelm},
    {"jais2", "Jais 2", "`attention_bias`, `mlp_bias`", read_jais2},
    {"hyperclovax", "HyperCLOVA X SEED Think",
     "the four multipliers, `use_post_norm`, `attention_bias`, `mlp_bias`", read_hyperclovax},
    {"vaultgemma", "VaultGemma", "as gemma2", read_vaultgemma},
    {"olmo", "OLMo 1", "`attention_bias`; `clip_qkv` must be null", read_olmo},
    {"cohere", "Command R, Aya 23 and Expanse",
     "`logit_scale`, `attention_bias`; `use_qk_norm` (Command R+) is refused", read_cohere},
    {"cohere2", "Command R7B, Command A",
     "`logit_scale`, `sliding_window`, `layer_types`; full layers have no rope", read_cohere2},
    {"gpt_neox", "GPT-NeoX, Pythia, Dolly 2",
     "`rotary_pct`, `rotary_emb_base`, `use_parallel_residual`, `attention_bias`, `hidden_dropout`",
     read_gpt_neox},
    {"phi", "Phi-1, Phi-1.5, Phi-2",
     "`partial_rotary_factor`, its three dropouts; `qk_layernorm` is refused", read_phi},
    {"opt", "OPT, Galactica",
     "`ffn_dim`, `enable_bias`, `layer_norm_elementwise_affine`, `dropout`; the shape of opt-350m "
     "is refused",
     read_opt},
    {"falcon", "Falcon 7B, 40B, 180B",
     "`new_decoder_architecture`, `multi_query`, `num_kv_heads`, `parallel_attn`, "
     "`num_ln_in_parallel_attn`, `bias`; alibi is refused",
     read_falcon},
    {"gptj", "GPT-J-6B", "`n_embd` and similar fields, `rotary_dim`, its three dropouts",
     read_gptj},
    {"gpt_neo", "GPT-Neo, TinyStories",
     "`num_layers` and similar fields, `attention_types`, `window_size`, its three dropouts",
     read_gpt_neo},
    {"gpt_bigcode", "StarCoder, SantaCoder, StarCoderBase",
     "`n_embd` and similar fields, `multi_query`, `scale_attn_weights`, its three dropouts",
     read_gpt_bigcode},
    {"hunyuan_v1_dense", "Hunyuan 0.5B to 7B, dense",
     "`attention_bias`, `rope_scaling` with `alpha`", read_hunyuan},
    {"ministral", "Ministral 8B", "`sliding_window`, `layer_types`", read_ministral},
    {"internlm3", "InternLM3", "`qkv_bias`, `bias`", read_internlm3},
    {"gemma3", "Gemma 3: 4B, 12B, 27B", "the text part: as gemma3_text", read_gemma3_part},
    {"mistral3", "Mistral Small 3.1, 3.2", "the text part: as mistral", read_mistral3_part},
    {"llava", "LLaVA 1.5 on Llama", "the text part: as llama", read_llava_part},
    {"smolvlm", "SmolVLM, SmolVLM2", "the text part: as llama", read_smolvlm_part},
    {"idefics3", "Idefics3, SmolVLM of 2024", "the text part: as llama", read_smolvlm_part},
    {"qwen2_vl", "Qwen2-VL", "the text part: as qwen2", read_qwen2_vl_part<kQwen2VlText>},
    {"qwen2_5_vl", "Qwen2.5-VL", "the text part: as qwen2", read_qwen2_vl_part<kQwen25VlText>},
    {"qwen3_vl", "Qwen3-VL, dense", "the text part: as qwen3", read_qwen3_vl_part},
    {"qwen3_5", "Qwen3.5: 0.8B to 27B", "the text part: as qwen3_5_text", read_qwen3_5_part},
    {"qwen3_5_text", "Qwen3.5, dense, without its vision part",
     "`layer_types`, `full_attention_interval`, `linear_num_key_heads` and similar fields, "
     "`partial_rotary_factor`, `attention_bias`",
     read_qwen3_5},
    {"qwen3_next", "Qwen3-Next-80B-A3B", "as qwen3_5_text and qwen2_moe", read_qwen3_next},
    {"qwen3_moe", "Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder",
     "`num_experts`, `num_experts_per_tok`, `norm_topk_prob`, `decoder_sparse_step`, "
     "`mlp_only_layers`, the auxiliary loss",
     read_qwen3_moe},
    {"qwen2_moe", "Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B",
     "as qwen3_moe; `shared_expert_intermediate_size`, `qkv_bias`", read_qwen2_moe},
    {"mixtral", "Mixtral 8x7B, 8x22B",
     "`num_local_experts`, `sliding_window`, the auxiliary loss; `router_jitter_noise` must be 0",
     read_mixtral},
    {"olmoe", "OLMoE 1B-7B", "`norm_topk_prob`, the auxiliary loss; `clip_qkv` must be null",
     read_olmoe},
    {"granitemoe", "Granite 3 MoE: 1B-A400M, 3B-A800M",
     "the four multipliers, `num_local_experts`, the auxiliary loss", read_granitemoe},
    {"gpt_oss", "gpt-oss-20b, gpt-oss-120b, in MXFP4 or bf16",
     "`layer_types`, `sliding_window`, `attention_bias`, `swiglu_limit`, the auxiliary loss",
     read_gpt_oss},
    {"deepseek_v2", "DeepSeek-V2-Lite",
     "latent attention, `n_shared_experts`, `first_k_dense_replace`, `routed_scaling_factor`; "
     "`topk_method` must be greedy",
     read_deepseek_v2},
    {"deepseek_v3", "DeepSeek-V3, R1, Moonlight",
     "latent attention, `rope_interleave`; the router's groups, correction, `norm_topk_prob`, "
     "`routed_scaling_factor`; `first_k_dense_replace`",
     read_deepseek_v3},
    {"glm4_moe", "GLM-4.5, 4.6, 4.7 and GLM-4.5-Air",
     "`attention_bias`, `use_qk_norm`, `partial_rotary_factor`; the router as deepseek_v3",
     read_glm4_moe},
    {"glm4_moe_lite", "GLM-4.7-Flash", "as deepseek_v3; `mlp_layer_types`", read_glm4_moe_lite},
    {"dots1", "dots.llm1", "`attention_bias`, windows; the router as deepseek_v3", read_dots1},
    {"solar_open", "Solar Open 100B", "`attention_bias`; the router as deepseek_v3",
     read_solar_open},
    {"exaone_moe", "K-EXAONE", "attention as exaone4; the router as deepseek_v3; `mlp_layer_types`",
     read_exaone_moe},
    {"minimax_m2", "MiniMax-M2, M2.1",
     "`rotary_dim` or `partial_rotary_factor`; a corrected router of sigmoids; the auxiliary loss "
     "is refused",
     read_minimax_m2},
    {"ernie4_5_moe", "ERNIE 4.5: 21B-A3B, 300B-A47B",
     "`moe_k`, `moe_norm_min`, `moe_layer_start_index`, `moe_layer_interval`; a corrected router; "
     "`use_bias` and the auxiliary loss are refused",
     read_ernie_moe},
    {"hunyuan_v1_moe", "Hunyuan-A13B",
     "as hunyuan_v1_dense; `moe_topk`, `num_experts`, one number for all layers", read_hunyuan_moe},
    {"granitemoeshared", "Granite 3.1 MoE with a shared MLP",
     "as granitemoe; `shared_intermediate_size`", read_granitemoeshared},
    {"granitemoehybrid", "Granite 4.0 without mamba layers: 350M, 1B, Micro",
     "as granitemoeshared; `position_embedding_type`; `layer_types` must all be attention",
     read_granitemoehybrid},
    {"youtu", "Youtu-LLM", "latent attention, `rope_interleave`", read_youtu},
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

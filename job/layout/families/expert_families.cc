#include "job/layout/families/family_readers.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "job/layout/families/family_fields.h"
#include "job/layout/shape/delta_pieces.h"

namespace dsj::layout {

using nlohmann::json;

// ---- mixtures of experts

namespace {

/// Qwen: the layers with a plain MLP.
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

}  // namespace

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
  same_windows(fields.flag("use_sliding_window", false) ? read_window(config, fields, 4096) : 0,
               out);
  read_experts(fields, {.count_default = 128, .inner_default = 768, .per_token = 8}, out);
  read_plain_layers(config, fields, out);
  out.experts.normalized = fields.flag("norm_topk_prob", false);
}

/// Qwen3's experts; layers with a window have their own rope.
void read_mellum(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 131072, .head_dim = 128, .rope_by_layer_type = true, .kv_heads = 4},
             out);
  all_biases(fields, "attention_bias", out);
  out.qk_norm = true;
  read_windows(config, fields, read_window(config, fields, 1024), but_each(0), out);
  const auto rope = [&](const char* type, double theta) {
    const json object = rope_object_of(config, type);
    Fields part(object, {}, std::string("rope_parameters.") + type + ".");
    part.require(part.number("partial_rotary_factor", 1) == 1, "partial_rotary_factor",
                 "is not 1; this family rotates whole heads");
    fields.inherit(part);
    return read_rope_object(object, std::string("rope_parameters.") + type, theta, fields, out);
  };
  out.rope = rope("full_attention", 500000);
  out.local_rope = rope("sliding_attention", 10000);
  read_experts(fields, {.count_default = 64, .inner_default = 896, .per_token = 8}, out);
  read_first_layers(config, fields, 0, out);
  out.experts.normalized = fields.flag("norm_topk_prob", true);
}

void read_mixtral(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 131072, .norm_eps = 1e-5, .theta = 1e6, .kv_heads = 8}, out);
  out.qkv_bias = false;
  same_windows(read_window(config, fields, 0), out);
  read_experts(fields, {.count = "num_local_experts", .inner = "intermediate_size"}, out);
  out.experts.normalized = true;
  out.experts.rounds_weights = false;
  out.names.router = "block_sparse_moe.gate";
  out.names.router_module = "mlp.gate";
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

/// OLMo 2's attention and norms.
void read_flex_olmo(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 4096, .theta = 500000, .padding = 100277}, out);
  all_biases(fields, "attention_bias", out);
  out.norm = NormKind::RmsOnce;
  out.pre_norms = false;
  out.post_norms = out.qk_norm = out.qk_norm_whole = true;
  read_experts(fields,
               {.count_default = 7, .inner = "intermediate_size", .per_token = 5, .balance = 0.01},
               out);
  out.experts.normalized = fields.flag("norm_topk_prob", false);
}

/// Granite with experts, whose weights are in one tensor each.
void read_granitemoe(const json& config, Fields& fields, ModelConfig& out) {
  read_granite(config, fields, out);
  read_experts(fields, {.count = "num_local_experts", .inner = "intermediate_size"}, out);
  out.experts.normalized = out.experts.stacked = true;
  out.names.router = "block_sparse_moe.router.layer";
  out.names.router_module = "block_sparse_moe.router";
  out.names.experts_module = "block_sparse_moe.experts";
  out.names.stacked_up = "block_sparse_moe.input_linear.weight";
  out.names.stacked_down = "block_sparse_moe.output_linear.weight";
}

/// With a shared expert.
void read_granitemoeshared(const json& config, Fields& fields, ModelConfig& out) {
  read_granitemoe(config, fields, out);
  out.experts.shared_inner = fields.whole("shared_intermediate_size", 0, kInnerMax, 0);
  out.names.shared_gate_up = "shared_mlp.input_linear";
  out.names.shared = "shared_mlp";
  out.names.shared_down = "output_linear";
}

namespace {

/// Mamba 2 in the layers that layer_types calls mamba or linear_attention; all if it is missing.
void read_mamba(const json& config, Fields& fields, ModelConfig& out) {
  const bool listed = !fields.absent("layer_types");
  const json types = listed ? config["layer_types"] : json::array();
  const bool fits = !listed || (types.is_array() && std::ssize(types) == out.num_layers);
  fields.require(fits, "layer_types", "is not a list with one entry per layer");
  std::vector<bool> layers(static_cast<size_t>(out.num_layers), !listed);
  for (int64_t layer = 0; fits && listed && layer < out.num_layers; ++layer) {
    const json& type = types[layer];
    layers[layer] = type == "mamba" || type == "linear_attention";
    const bool known = layers[layer] || type == "attention" || type == "full_attention";
    fields.require(known, "layer_types",
                   "has " + (known ? "" : json_brief(type)) + "; built are mamba and attention");
  }
  if (std::ranges::find(layers, true) == layers.end()) return;
  const int64_t inner = fields.positive("mamba_expand", 1024, 2) * out.hidden_size;
  const int64_t heads = fields.positive("mamba_n_heads", kWidthMax, 128);
  const bool automatic = fields.absent("mamba_d_head") || config["mamba_d_head"] == "auto";
  const int64_t dim =
      automatic ? std::max<int64_t>(1, inner / heads) : fields.positive("mamba_d_head", kWidthMax);
  fields.require(inner <= kWidthMax && heads * dim == inner, "mamba_n_heads",
                 "times mamba_d_head is not mamba_expand times hidden_size, or above " +
                     std::to_string(kWidthMax));
  const int64_t groups = fields.positive("mamba_n_groups", kWidthMax, 1);
  const int64_t state = fields.positive("mamba_d_state", kWidthMax, 256);
  fields.require(heads % groups == 0, "mamba_n_groups", "does not divide mamba_n_heads");
  fields.require(groups <= kWidthMax / state, "mamba_d_state",
                 "times mamba_n_groups is above " + std::to_string(kWidthMax));
  out.delta = {.key_heads = groups,
               .value_heads = heads,
               .key_dim = state,
               .value_dim = dim,
               .kernel = fields.positive("mamba_d_conv", kDeltaChunk, 4),
               .layers = std::move(layers),
               .mamba = true,
               .conv_bias = fields.flag("mamba_conv_bias", true)};
  fields.require(!fields.flag("mamba_proj_bias", false), "mamba_proj_bias",
                 "is true; biases of Mamba's products are not built");
  fields.require(out.activation == Activation::Silu, "hidden_act",
                 "is not \"silu\", the only one built for this family");
  // Files have no number for infinity: transformers writes an object.
  const json limit = config.value("time_step_limit", json());
  fields.require(limit.is_null() || (limit.is_array() && limit.size() == 2 && limit[0] == 0.0 &&
                                     limit[1] == json({{"__float__", "Infinity"}})),
                 "time_step_limit", "is not from 0 to infinity, the only one built");
  out.names.delta = "mamba";
}

}  // namespace

/// Granite 4.0: Mamba 2 in most layers.
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
  read_mamba(config, fields, out);
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
                .per_token = 4},
               out);
  out.experts.normalized = out.experts.alternates = out.experts.router_bias = true;
  out.experts.clamp = fields.number("swiglu_limit", 7.0, kTiny, kFactorMax);
  out.experts.alpha = fields.number("swiglu_alpha", 1.702, kTiny, kFactorMax);
  out.names.router = "mlp.router";
}

// ---- the gated delta rule

namespace {

/// The layers with the delta rule: by layer_types, a list of linear_attention and full_attention,
/// or all except each full_attention_interval-th.
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

/// Full attention with gates, and the delta rule. `kv_heads`: the default. `inner`: the key of an
/// MLP's size.
void read_hybrid(const json& config, int64_t kv_heads, Fields& fields, ModelConfig& out,
                 const char* inner = "intermediate_size") {
  read_shape(config, fields,
             {.inner_key = inner,
              .max_position = 32768,
              .head_dim = 256,
              .partial_rotary = 0.25,
              .kv_heads = kv_heads},
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

}  // namespace

void read_qwen3_5(const json& config, Fields& fields, ModelConfig& out) {
  read_hybrid(config, 4, fields, out);
}

namespace {

void read_qwen_shared_experts(Fields& fields, int64_t count, int64_t per_token, ModelConfig& out) {
  read_experts(fields, {.count_default = count, .inner_default = 512, .per_token = per_token}, out);
  out.experts.shared_inner = fields.positive("shared_expert_intermediate_size", kInnerMax, 512);
  out.experts.shared_scaled = true;
}

}  // namespace

void read_qwen3_next(const json& config, Fields& fields, ModelConfig& out) {
  read_hybrid(config, 2, fields, out);
  out.delta.by_group = true;
  read_qwen_shared_experts(fields, 512, 10, out);
  read_plain_layers(config, fields, out);
  out.experts.normalized = fields.flag("norm_topk_prob", true);
}

/// Qwen3.5's layers with experts, which are in one tensor each.
void read_qwen3_5_moe(const json& config, Fields& fields, ModelConfig& out) {
  json plain = config;
  if (fields.absent("moe_intermediate_size")) plain["moe_intermediate_size"] = 512;
  Fields part(plain, {}, "");
  read_hybrid(plain, 2, part, out, "moe_intermediate_size");
  read_qwen_shared_experts(part, 256, 8, out);
  fields.inherit(part);
  out.experts.normalized = out.experts.stacked = true;
}

/// Latent attention, and shared experts.
void read_deepseek_v2(const json& config, Fields& fields, ModelConfig& out) {
  read_latent(config, fields, {}, out);
  out.mlp_bias = fields.flag("mlp_bias", false);
  fields.require(!out.mlp_bias, "mlp_bias", "is true; biases of experts are not built");
  no_slices(fields);

  fields.require(!fields.absent("num_experts_per_tok"), "num_experts_per_tok",
                 "is missing; expected the number of experts that a token passes");
  read_experts(fields,
               {.count = "n_routed_experts",
                .count_default = 64,
                .inner_default = 1407,
                .can_balance = false},
               out);
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

// ---- sigmoids with a correction

void read_deepseek_v3(const json& config, Fields& fields, ModelConfig& out) {
  read_latent(config, fields, {}, out, {.max_position = 4096});
  out.rope_in_pairs = fields.flag("rope_interleave", true);
  no_slices(fields);
  read_sigmoid_experts(fields,
                       {.experts = {.count = "n_routed_experts",
                                    .count_default = 256,
                                    .inner_default = 2048,
                                    .per_token = 8},
                        .scale = 2.5,
                        .groups = 8,
                        .groups_taken = 4},
                       out);
  read_first_layers(config, fields, 3, out);
}

void read_glm4_moe_lite(const json& config, Fields& fields, ModelConfig& out) {
  read_latent(config, fields, {.query_rank = 768, .plain = 192, .value = 256}, out,
              {.max_position = 202752, .norm_eps = 1e-5});
  out.rope_in_pairs = fields.flag("rope_interleave", true);
  no_slices(fields);
  read_sigmoid_experts(fields,
                       {.experts = {.count = "n_routed_experts",
                                    .count_default = 64,
                                    .inner_default = 1536,
                                    .per_token = 4},
                        .scale = 1.8},
                       out);
  read_first_layers(config, fields, 1, out);
}

/// DeepSeek-V3's attention with plain MLPs.
void read_youtu(const json& config, Fields& fields, ModelConfig& out) {
  read_latent(config, fields, {}, out, {.max_position = 131072, .tied = true});
  out.rope_in_pairs = fields.flag("rope_interleave", true);
}

/// Latent attention whose rope rotates halves; factors of embedding, branches and logits.
void read_minicpm3(const json& config, Fields& fields, ModelConfig& out) {
  json plain = config;
  if (fields.absent("v_head_dim")) {
    const int64_t heads = fields.positive("num_attention_heads", kWidthMax);
    plain["v_head_dim"] = std::max<int64_t>(1, fields.positive("hidden_size", kWidthMax) / heads);
  }
  Fields part(plain, {}, "");
  read_latent(plain, part, {.query_rank = 768, .rank = 256, .plain = 64, .rotated = 32}, out,
              {.max_position = 32768, .norm_eps = 1e-5, .tied = true});
  out.rope_in_pairs = false;
  out.mlp_bias = part.flag("mlp_bias", false);
  const auto factor = [&](const char* key, double fallback, double of_null) {
    return is_null(config, key) ? of_null : part.number(key, fallback, kTiny, kFactorMax);
  };
  const auto layers = static_cast<double>(out.num_layers);
  const auto hidden = static_cast<double>(out.hidden_size);
  out.embedding_scale = part.number("scale_emb", 12, kTiny, kFactorMax);
  out.rounds_embedding_scale = true;
  out.residual_scale = factor("scale_depth", 1.4, std::sqrt(layers)) / std::sqrt(layers);
  out.logits_scale = factor("dim_model_base", 256, hidden) / hidden;
  fields.inherit(part);
}

void read_glm4_moe(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 131072, .norm_eps = 1e-5, .partial_rotary = 0.5, .kv_heads = 8}, out);
  out.qkv_bias = fields.flag("attention_bias", false);
  out.qk_norm = fields.flag("use_qk_norm", false);
  read_sigmoid_experts(fields,
                       {.experts = {.count = "n_routed_experts",
                                    .count_default = 128,
                                    .inner_default = 1408,
                                    .per_token = 8}},
                       out);
  read_first_layers(config, fields, 1, out);
}

/// Every layer has experts.
void read_solar_open(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.inner_key = "moe_intermediate_size",
              .max_position = 131072,
              .head_dim = 128,
              .norm_eps = 1e-5,
              .theta = 1e6,
              .kv_heads = 8},
             out);
  out.qkv_bias = fields.flag("attention_bias", false);
  read_sigmoid_experts(fields,
                       {.experts = {.count = "n_routed_experts",
                                    .count_default = 128,
                                    .inner_default = 1280,
                                    .per_token = 8}},
                       out);
}

void read_dots1(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.kv_heads = 32}, out);
  all_biases(fields, "attention_bias", out);
  out.qk_norm = true;
  const int64_t first = fields.whole("max_window_layers", 0, INT64_MAX, 62);
  read_windows(
      config, fields, read_window(config, fields, 4096),
      [first](int64_t layer) { return layer >= first; }, out);
  for (const char* key : {"n_routed_experts", "n_shared_experts", "num_experts_per_tok"})
    fields.require(!fields.absent(key), key, "is missing; expected a positive integer");
  read_sigmoid_experts(
      fields,
      {.experts = {.count = "n_routed_experts", .inner_default = 1408}, .normalized = false}, out);
  read_first_layers(config, fields, 0, out);
}

/// Before transformers 5, files had the number of rotated elements of a head, not their share.
void read_minimax_m2(const json& config, Fields& fields, ModelConfig& out) {
  const int64_t head = fields.positive("head_dim", kWidthMax, 128);
  json plain = config;
  if (!fields.absent("rotary_dim") && fields.absent("partial_rotary_factor"))
    plain["partial_rotary_factor"] =
        static_cast<double>(fields.positive("rotary_dim", head)) / static_cast<double>(head);
  Fields shape(plain, {}, "");
  read_shape(
      plain, shape,
      {.max_position = 196608, .head_dim = 128, .theta = 5e6, .partial_rotary = 1, .kv_heads = 8},
      out);
  fields.inherit(shape);
  out.qkv_bias = false;
  out.qk_norm = out.qk_norm_whole = true;
  read_sigmoid_experts(fields,
                       {.experts = {.count = "num_local_experts",
                                    .count_default = 256,
                                    .inner = "intermediate_size",
                                    .inner_default = 1536,
                                    .per_token = 8},
                        .shared = nullptr},
                       out);
  no_auxiliary_loss(fields, out);
  out.experts.exact_router = false;
  out.experts.normalized = true;
  out.experts.least_sum = 0;
  out.names.router = "block_sparse_moe.gate";
  out.names.router_module = "mlp.gate";
  out.names.correction = "block_sparse_moe.e_score_correction_bias";
  out.names.experts = "block_sparse_moe.experts";
  out.names.expert_gate = "w1";
  out.names.expert_up = "w3";
  out.names.expert_down = "w2";
  fields.require(fields.number("router_jitter_noise", 0, 0, kFactorMax) == 0, "router_jitter_noise",
                 "is not 0; noise on what the router reads is not built");
}

}  // namespace dsj::layout

#include "job/layout/families/family_readers.h"

#include <algorithm>
#include <cmath>

#include "job/layout/families/family_fields.h"

namespace dsj::layout {

using nlohmann::json;

// ---- Llama, and families that differ from it only in data

void read_llama(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {}, out);
  all_biases(fields, "attention_bias", out);
  out.mlp_bias = fields.flag("mlp_bias", false);
  no_slices(fields);
}

void read_iquestcoder(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 131072, .head_dim = 128, .norm_eps = 1e-5, .kv_heads = 8}, out);
  all_biases(fields, "attention_bias", out);
  out.mlp_bias = fields.flag("mlp_bias", false);
  fields.require(fields.absent("clip_qkv"), "clip_qkv",
                 "is not null; clipped queries, keys and values are not built");
  fields.require(!fields.flag("use_sliding_window", false), "use_sliding_window",
                 "is true, which transformers' class does not have");
}

void read_mistral(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.max_position = 131072, .kv_heads = 8}, out);
  out.qkv_bias = false;
  read_windows(config, fields, read_window(config, fields, 4096), every_layer, out);
}

namespace {

/// Qwen2 and Qwen3: use_sliding_window; then layer_types or max_window_layers per layer.
void read_qwen_windows(const json& config, Fields& fields, ModelConfig& out) {
  const int64_t window =
      fields.flag("use_sliding_window", false) ? read_window(config, fields, 4096) : 0;
  const int64_t first = window > 0 ? fields.whole("max_window_layers", 0, INT64_MAX, 28) : 0;
  read_windows(
      config, fields, window, [first](int64_t layer) { return layer >= first; }, out);
}

}  // namespace

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

namespace {

/// The rope object of a file; null if there is none.
json* rope_of(json& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto it = config.find(key);
    if (it != config.end() && it->is_object() && !it->empty()) return &*it;
  }
  return nullptr;
}

}  // namespace

/// Queries grow with the logarithm of their position, as in Llama 4.
void read_ministral3(const json& config, Fields& fields, ModelConfig& out) {
  json plain = config;
  if (!rope_of(plain))
    plain["rope_parameters"] = {{"rope_type", "yarn"},
                                {"rope_theta", 1e6},
                                {"factor", 16.0},
                                {"original_max_position_embeddings", 16384},
                                {"mscale", 1.0},
                                {"mscale_all_dim", 1.0},
                                {"llama_4_scaling_beta", 0.1}};
  Fields part(plain, {}, "");
  read_shape(plain, part,
             {.max_position = 262144,
              .head_dim = 128,
              .norm_eps = 1e-5,
              .theta = 1e6,
              .padding = 11,
              .kv_heads = 8},
             out);
  out.qkv_bias = false;
  same_windows(read_window(plain, part, 0), out);
  fields.inherit(part);
  constexpr char kGrowth[] = "llama_4_scaling_beta";
  constexpr char kLength[] = "original_max_position_embeddings";
  Fields rope(*rope_of(plain), {}, "rope_parameters.");
  for (const char* key : {kGrowth, kLength})
    rope.require(!rope.absent(key), key, "is missing; this family's queries grow by it");
  out.query_growth = rope.number(kGrowth, 0, 0, kFactorMax);
  out.query_growth_length = rope.positive(kLength, kIndexMax, 1);
  fields.inherit(rope);
}

/// Queries and keys are normed after rope. A scaling with alpha stretches the base once,
/// independent of the length.
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

namespace {

/// The same for every layer; files have a number or a list.
void one_for_all_layers(json& config, Fields& fields, const char* key) {
  const auto list = config.find(key);
  if (list == config.end() || !list->is_array()) return;
  const bool alike = !list->empty() && std::ranges::all_of(*list, [&](const json& one) {
    return one == list->front();
  });
  fields.require(alike, key, "has another value for some layers, which is not built");
  if (alike) config[key] = json(list->front());
}

}  // namespace

/// With a shared expert.
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
                .per_token_key = "moe_topk",
                .can_balance = false},
               out);
  fields.inherit(part);
  out.experts.normalized = true;
  out.experts.shared_inner = out.intermediate_size;
  out.names.router = "mlp.gate.wg";
  out.names.shared = "mlp.shared_mlp";
}

/// Llama with a separate field for each bias.
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

/// Granite with norms before and after; its factor multiplies the logits.
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
  same_windows(read_window(config, fields, 0), out);
}

namespace {

/// The rope of classes that have Llama 3's scaling, theta included, where the file has no object for it.
RopeConfig absent_llama3(double factor, double theta, Fields& fields, const ModelConfig& out) {
  return read_rope_object({{"rope_type", "llama3"},
                           {"factor", factor},
                           {"low_freq_factor", 1.0},
                           {"high_freq_factor", 4.0},
                           {"original_max_position_embeddings", 8192}},
                          "rope_parameters", theta, fields, out);
}

}  // namespace

void read_cwm(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(
      config, fields,
      {.max_position = 131072, .head_dim = 128, .norm_eps = 1e-5, .theta = 1e6, .kv_heads = 8},
      out);
  out.qkv_bias = false;
  if (fields.absent("rope_parameters") && fields.absent("rope_scaling"))
    out.rope = absent_llama3(16, 1e6, fields, out);
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

/// Experts are weighted by probabilities, and chosen by corrected ones.
void read_ernie_moe(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 131072,
              .norm_eps = 1e-5,
              .theta = 500000,
              .tied = true,
              .padding = 0,
              .kv_heads = 4},
             out);
  out.dropout.attention = 0;  // transformers does not read it
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
  no_auxiliary_loss(fields, out);
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

/// An activation with two parameters.
void read_apertus(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 65536,
              .norm_eps = 1e-5,
              .theta = 1.2e7,
              .activation = "xielu",
              .xielu = true,
              .padding = 3},
             out);
  if (fields.absent("rope_parameters") && fields.absent("rope_scaling"))
    out.rope = absent_llama3(8, 1.2e7, fields, out);
  all_biases(fields, "attention_bias", out);
  out.qk_norm = true;
  out.gated = false;
  out.names.norm1 = "attention_layernorm";
  out.names.norm2 = "feedforward_layernorm";
}

namespace {

/// The layers with a convolution: by layer_types, a list of conv and full_attention, or all except
/// full_attn_idxs.
void read_conv_layers(const json& config, Fields& fields, ModelConfig& out) {
  out.conv.layers.assign(static_cast<size_t>(out.num_layers), false);
  if (!fields.absent("layer_types")) {
    const json& types = config["layer_types"];
    const bool fits = types.is_array() && std::ssize(types) == out.num_layers;
    fields.require(fits, "layer_types", "is not a list with one entry per layer");
    for (int64_t layer = 0; fits && layer < out.num_layers; ++layer) {
      const bool conv = types[layer] == "conv";
      if (!conv)
        fields.require(types[layer] == "full_attention", "layer_types",
                       "has " + json_brief(types[layer]) + "; built are conv and full_attention");
      out.conv.layers[layer] = conv;
    }
    return;
  }
  if (fields.absent("full_attn_idxs")) return;
  const json& listed = config["full_attn_idxs"];
  const bool fits = listed.is_array() && std::ranges::all_of(listed, [](const json& one) {
                      return one.is_number_integer();
                    });
  fields.require(fits, "full_attn_idxs", "is not a list of layers");
  for (int64_t layer = 0; fits && layer < out.num_layers; ++layer)
    out.conv.layers[layer] = std::ranges::find(listed, json(layer)) == listed.end();
}

/// What the class makes of intermediate_size: two thirds, times a factor, up to a multiple.
int64_t adjusted_inner(const json& config, Fields& fields, int64_t inner) {
  if (!fields.flag("block_auto_adjust_ff_dim", true)) return inner;
  const auto whole = [](double x) { return static_cast<int64_t>(std::min(x, 2.0 * kInnerMax)); };
  int64_t adjusted = whole(2.0 * static_cast<double>(inner) / 3);
  if (!is_null(config, "block_ffn_dim_multiplier")) {
    const double factor = fields.number("block_ffn_dim_multiplier", 1, kTiny, kFactorMax);
    const int64_t multiple = fields.positive("block_multiple_of", kInnerMax, 256);
    adjusted = whole(factor * static_cast<double>(adjusted));
    adjusted = multiple * ((adjusted + multiple - 1) / multiple);
  }
  fields.require(
      adjusted >= 1 && adjusted <= kInnerMax, "intermediate_size",
      "becomes " + std::to_string(adjusted) + "; expected 1 to " + std::to_string(kInnerMax));
  return std::clamp<int64_t>(adjusted, 1, kInnerMax);
}

}  // namespace

namespace {

/// Attention and convolutions of LFM2. Some keys have an older name, which wins.
void read_lfm2_layers(const json& config, Fields& fields, const char* older_inner,
                      ModelConfig& out) {
  json plain = config;
  for (const auto& [older, key] :
       {std::pair{older_inner, "intermediate_size"}, {"tie_embedding", "tie_word_embeddings"}})
    if (plain.contains(older)) plain[key] = json(plain[older]);
  Fields part(plain, {}, "");
  read_shape(plain, part,
             {.max_position = 128000,
              .norm_eps = 1e-5,
              .norm_eps_key = "norm_eps",
              .theta = 1e6,
              .tied = true,
              .padding = 0,
              .kv_heads = 8},
             out);
  fields.inherit(part);
  out.activation = Activation::Silu;
  out.dropout.attention = 0;  // the class reads neither
  out.qkv_bias = false;
  out.qk_norm = true;
  out.conv.kernel = fields.positive("conv_L_cache", kConvKernelMax, 3);
  fields.require(!fields.flag("conv_bias", false), "conv_bias",
                 "is true; biases of convolutions are not built");
  read_conv_layers(config, fields, out);
  if (std::ranges::find(out.conv.layers, true) == out.conv.layers.end()) out.conv = {};
  out.names.norm = "embedding_norm";
  out.names.norm1 = "operator_norm";
  out.names.norm2 = "ffn_norm";
  out.names.o = "out_proj";
  out.names.q_norm = "q_layernorm";
  out.names.k_norm = "k_layernorm";
  out.names.gate = "feed_forward.w1";
  out.names.up = "feed_forward.w3";
  out.names.down = "feed_forward.w2";
}

}  // namespace

void read_lfm2(const json& config, Fields& fields, ModelConfig& out) {
  read_lfm2_layers(config, fields, "block_ff_dim", out);
  out.intermediate_size = adjusted_inner(config, fields, out.intermediate_size);
}

/// Experts behind the first layers, chosen by sigmoids with a correction.
void read_lfm2_moe(const json& config, Fields& fields, ModelConfig& out) {
  fields.require(!fields.absent("layer_types"), "layer_types", "is missing; expected a list");
  read_lfm2_layers(config, fields, "", out);
  read_experts(fields,
               {.count_default = 32,
                .inner_default = 1792,
                .per_token = 4,
                .balance = 0,
                .can_balance = false},
               out);
  ExpertsConfig& experts = out.experts;
  experts.sigmoid = true;
  experts.corrected = fields.flag("use_expert_bias", true);
  experts.normalized = fields.flag("norm_topk_prob", true);
  experts.sum_shift = 1e-6;
  experts.scale = fields.number("routed_scaling_factor", 1, kTiny, kFactorMax);
  const int64_t first = fields.whole("num_dense_layers", 0, kLayersMax, 2);
  experts.dense.assign(static_cast<size_t>(out.num_layers), false);
  for (int64_t layer = 0; layer < std::min(first, out.num_layers); ++layer)
    experts.dense[layer] = true;
  out.names.router = "feed_forward.gate";
  out.names.correction = "feed_forward.expert_bias";
  out.names.experts = out.names.experts_module = "feed_forward.experts";
  out.names.expert_gate = "w1";
  out.names.expert_up = "w3";
  out.names.expert_down = "w2";
}

// ---- norms after attention and the MLP

void read_olmo2(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.norm_eps = 1e-5, .padding = 1}, out);
  all_biases(fields, "attention_bias", out);
  out.norm = NormKind::RmsOnce;
  out.pre_norms = false;
  out.post_norms = out.qk_norm = out.qk_norm_whole = true;
}

/// Layers with a window have the unscaled rope.
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

namespace {

/// Attention of EXAONE 4.0 and its successors: full layers have no rope.
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

}  // namespace

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

void read_glm(const json& config, Fields& fields, ModelConfig& out) {
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
  read_glm(config, fields, out);
  out.post_norms = true;
  out.names.post_attention_norm = "post_self_attn_layernorm";
  out.names.post_mlp_norm = "post_mlp_layernorm";
}

}  // namespace dsj::layout

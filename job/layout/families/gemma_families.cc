#include <algorithm>
#include <cmath>
#include <utility>

#include "job/layout/families/family_fields.h"
#include "job/layout/families/family_readers.h"

namespace dsj::layout {

using nlohmann::json;

// ---- Gemma

namespace {

void read_gemma_shape(const json& config, Fields& fields, Defaults defaults, ModelConfig& out) {
  defaults.head_dim = 256;
  defaults.tied = true;
  defaults.activation = "gelu_pytorch_tanh";
  defaults.padding = 0;
  read_shape(config, fields, defaults, out);
  all_biases(fields, "attention_bias", out);
  out.norm = NormKind::RmsPlusOne;
  out.embedding_scale = std::sqrt(static_cast<double>(out.hidden_size));
  out.rounds_embedding_scale = true;
}

void only_causal(Fields& fields) {
  fields.require(!fields.flag("use_bidirectional_attention", false), "use_bidirectional_attention",
                 "is true; this engine trains causal models");
}

}  // namespace

void read_gemma(const json& config, Fields& fields, ModelConfig& out) {
  read_gemma_shape(config, fields, {.max_position = 8192, .kv_heads = 16}, out);
  // A released config says gelu and means the tanh form; so does transformers, for this class alone.
  if (out.activation == Activation::Gelu) out.activation = Activation::GeluTanh;
  only_causal(fields);
}

namespace {

/// Defaults of Gemma 3 and 4.
Defaults since_gemma3() {
  return {.max_position = 131072,
          .rope_by_layer_type = true,
          .activation_key = "hidden_activation",
          .kv_heads = 4};
}

/// Gemma 2 and 3: norms before and after attention and the MLP, their own scale, caps.
void read_gemma_layers(Fields& fields, double logits_cap, double scores_cap, ModelConfig& out) {
  out.post_norms = true;
  out.names.norm2 = "pre_feedforward_layernorm";
  out.attention_multiplier =
      1 / std::sqrt(fields.number("query_pre_attn_scalar", 256, kTiny, kFactorMax));
  out.logits_cap = fields.number("final_logit_softcapping", logits_cap, 0, kFactorMax);
  out.scores_cap = fields.number("attn_logit_softcapping", scores_cap, 0, kFactorMax);
}

}  // namespace

void read_gemma2(const json& config, Fields& fields, ModelConfig& out) {
  read_gemma_shape(config, fields,
                   {.max_position = 8192, .activation_key = "hidden_activation", .kv_heads = 4},
                   out);
  only_causal(fields);
  const bool no_logits = is_null(config, "final_logit_softcapping");
  const bool no_scores = is_null(config, "attn_logit_softcapping");
  read_gemma_layers(fields, no_logits ? 0 : 30, no_scores ? 0 : 50, out);
  read_windows(config, fields, read_window(config, fields, 4096), but_each(2), out);
}

/// Gemma 2 without the norms after attention and the MLP.
void read_vaultgemma(const json& config, Fields& fields, ModelConfig& out) {
  read_gemma2(config, fields, out);
  out.post_norms = false;
}

void read_gemma3(const json& config, Fields& fields, ModelConfig& out) {
  read_gemma_shape(config, fields, since_gemma3(), out);
  only_causal(fields);
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

namespace {

/// Gemma 4: the heads of layers with full attention, by global_head_dim and
/// num_global_key_value_heads, or by the object that transformers 5.23 writes instead.
void read_gemma4_heads(const json& config, Fields& fields, ModelConfig& out) {
  const bool shares = fields.flag("attention_k_eq_v", false);
  const LayerShape narrow{out.head_dim, out.num_kv_heads};
  LayerShape wide{fields.positive("global_head_dim", kWidthMax, 512), out.num_kv_heads, shares};
  if (shares)
    wide.num_kv_heads = fields.positive("num_global_key_value_heads", kWidthMax, out.num_kv_heads);
  for (int64_t layer = 0; layer < out.num_layers; ++layer)
    out.shapes.push_back(out.windows[layer] > 0 ? narrow : wide);
  if (fields.absent("per_layer_config")) return;
  const json& layers = config["per_layer_config"];
  fields.require(layers.is_object(), "per_layer_config", "is not an object");
  for (int64_t layer = 0; layers.is_object() && layer < out.num_layers; ++layer) {
    LayerShape& shape = out.shapes[layer];
    shape.head_dim = narrow.head_dim, shape.num_kv_heads = narrow.num_kv_heads;
    const auto own = layers.find(std::to_string(layer));
    if (own == layers.end()) continue;
    fields.require(own->is_object(), "per_layer_config", "has a layer that is not an object");
    if (!own->is_object()) continue;
    Fields of_layer(*own, {}, "per_layer_config." + std::to_string(layer) + ".");
    for (const auto& [key, value] : own->items())
      of_layer.require(key == "head_dim" || key == "num_key_value_heads", key.c_str(),
                       "is of one layer alone; built are head_dim and num_key_value_heads");
    shape.head_dim = of_layer.positive("head_dim", kWidthMax, narrow.head_dim);
    shape.num_kv_heads = of_layer.positive("num_key_value_heads", kWidthMax, narrow.num_kv_heads);
    fields.inherit(of_layer);
  }
}

/// The rope of a type of layer. Only proportional rope rotates a part of a head.
RopeConfig read_gemma4_rope(const json& config, Fields& fields, const char* type, json absent,
                            const ModelConfig& sizes) {
  const std::string key = std::string("rope_parameters.") + type;
  json object = fields.absent("rope_parameters") ? std::move(absent) : rope_object_of(config, type);
  fields.require(!object.empty(), "rope_parameters", std::string("has no object for ") + type);
  if (object.value("rope_type", json()) != "proportional")
    return read_rope_object(object, key, 10000, fields, sizes);
  Fields rope(object, {}, key + ".");
  RopeConfig r{.scaling = RopeConfig::Scaling::Proportional};
  r.theta = rope.number("rope_theta", 0, kTiny, 1e15);
  r.factor = rope.number("factor", 1, kTiny, kFactorMax);
  const double part = rope.number("partial_rotary_factor", 1, 0, 1);
  // transformers halves before it truncates to a number of pairs.
  r.turning = 2 * static_cast<int64_t>(part * static_cast<double>(sizes.head_dim) / 2);
  fields.inherit(rope);
  return r;
}

/// E2B, E4B: the last layers use the keys and values of the last earlier layer of their type.
void read_shared_keys(Fields& fields, ModelConfig& out) {
  const int64_t shared = fields.whole("num_kv_shared_layers", 0, kLayersMax, 0);
  const bool wide = fields.flag("use_double_wide_mlp", false);
  if (shared == 0) return;
  const int64_t first = out.num_layers - shared;
  for (int64_t layer = 0; layer < out.num_layers; ++layer) {
    int64_t from = std::min(layer, first - 1);
    while (layer >= first && from >= 0 && (out.windows[from] > 0) != (out.windows[layer] > 0))
      --from;
    fields.require(from >= 0, "num_kv_shared_layers",
                   "leaves no layer of the type of layer " + std::to_string(layer) +
                       " with keys and values of its own");
    if (from < 0) return;
    out.key_layers.push_back(from);
    if (layer < first) continue;
    LayerShape& shape = out.shapes[layer];
    fields.require(shape == out.shapes[from], "per_layer_config",
                   "gives layer " + std::to_string(layer) + " other heads than layer " +
                       std::to_string(from) + ", whose keys and values it uses");
    shape.shares_keys = true;
    if (wide) shape.intermediate_size = 2 * out.intermediate_size;
  }
}

/// E2B, E4B: an input of each layer.
void read_layer_inputs(Fields& fields, ModelConfig& out) {
  out.layer_input = fields.whole("hidden_size_per_layer_input", 0, kWidthMax, 256);
  if (out.layer_input == 0) return;
  fields.require(out.num_layers * out.layer_input <= kWidthMax, "hidden_size_per_layer_input",
                 "times num_hidden_layers is above " + std::to_string(kWidthMax));
  const int64_t rows = fields.positive("vocab_size_per_layer_input", kIndexMax, 262144);
  fields.require(rows == out.vocab_size, "vocab_size_per_layer_input",
                 "is " + std::to_string(rows) + " and vocab_size " +
                     std::to_string(out.vocab_size) +
                     "; built is one row for each token of the vocabulary");
}

}  // namespace

void read_gemma4(const json& config, Fields& fields, ModelConfig& out) {
  read_gemma_shape(config, fields, since_gemma3(), out);
  // "vision": text is causal, pictures are not; rows have only text.
  const std::string sees = fields.text("use_bidirectional_attention", "vision");
  fields.require(sees == "vision", "use_bidirectional_attention",
                 "is \"" + sees + "\"; this engine trains causal models");
  out.norm = NormKind::RmsOnce;
  out.post_norms = out.qk_norm = out.value_norm = out.layer_scale = true;
  out.names.norm2 = "pre_feedforward_layernorm";
  out.scale_attention = false;
  out.logits_cap = fields.number("final_logit_softcapping", 0, 0, kFactorMax);
  // The class forces full attention on the last layer.
  json types = config;
  if (const auto list = types.find("layer_types");
      list != types.end() && list->is_array() && !list->empty())
    list->back() = "full_attention";
  read_windows(types, fields, read_window(config, fields, 512), but_each(6), out);
  out.windows.back() = 0;
  read_gemma4_heads(config, fields, out);
  for (const int64_t kind : out.layer_kinds().first) {
    const LayerShape& shape = out.shapes[kind];
    fields.require(shape.head_dim % 2 == 0, "global_head_dim",
                   "is odd; rotary embedding needs pairs");
    fields.require(out.num_heads % shape.num_kv_heads == 0, "num_global_key_value_heads",
                   "does not divide num_attention_heads");
    fields.require(out.num_heads * shape.head_dim <= kWidthMax, "global_head_dim",
                   "times num_attention_heads is above " + std::to_string(kWidthMax));
  }
  const auto sizes_of = [&](bool slides) {
    for (int64_t layer = 0; layer < out.num_layers; ++layer)
      if ((out.windows[layer] > 0) == slides) return out.of_layer(layer);
    return out;
  };
  const ModelConfig full = sizes_of(false), sliding = sizes_of(true);
  for (int64_t layer = 0; layer < out.num_layers; ++layer)
    fields.require(out.shapes[layer].head_dim == (out.windows[layer] > 0 ? sliding : full).head_dim,
                   "per_layer_config",
                   "has heads of several sizes in layers of one type, which is not built");
  out.rope = read_gemma4_rope(
      config, fields, "full_attention",
      {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1e6}}, full);
  out.local_rope = read_gemma4_rope(config, fields, "sliding_attention",
                                    {{"rope_type", "default"}, {"rope_theta", 1e4}}, sliding);
  read_shared_keys(fields, out);
  read_layer_inputs(fields, out);
  if (!fields.flag("enable_moe_block", false)) return;
  fields.require(out.key_layers.empty(), "num_kv_shared_layers",
                 "is not 0 beside enable_moe_block: experts in layers that share keys and values "
                 "are not built");
  fields.require(out.layer_input == 0, "hidden_size_per_layer_input",
                 "is not 0 (if missing, it is 256) beside enable_moe_block: experts in layers with "
                 "an input of their own are not built");
  read_experts(fields,
               {.inner = "moe_intermediate_size",
                .balance = 0,
                .per_token_key = "top_k_experts",
                .can_balance = false},
               out);
  ExpertsConfig& experts = out.experts;
  experts.normalized = experts.stacked = experts.beside_mlp = true;
  experts.rounds_weights = false;
  out.names.router = "router.proj";
  out.names.experts = out.names.experts_module = "experts";
  out.names.stacked_up = "experts.gate_up_proj";
  out.names.stacked_down = "experts.down_proj";
}

/// Gemma 4 without experts and without embeddings per layer, regardless of the file.
void read_gemma4_unified(const json& config, Fields& fields, ModelConfig& out) {
  json plain = config;
  plain["hidden_size_per_layer_input"] = 0;
  plain["enable_moe_block"] = false;
  for (const auto& [key, absent] :
       {std::pair{"max_position_embeddings", 262144}, {"sliding_window", 1024}})
    if (!plain.contains(key)) plain[key] = absent;
  Fields part(plain, {}, "");
  read_gemma4(plain, part, out);
  fields.inherit(part);
}

}  // namespace dsj::layout

#include "job/layout/families/family_fields.h"

#include <algorithm>
#include <cmath>

namespace dsj::layout {
namespace {

using nlohmann::json;
using Scaling = RopeConfig::Scaling;

constexpr double kThetaMax = 1e15;

/// The mscale of yarn.
double mscale(double factor, double scale) {
  return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

void read_yarn(Fields& rope, int64_t max_position, RopeConfig& r) {
  const double derived =
      std::max(1.0, static_cast<double>(max_position) / static_cast<double>(r.original_max));
  r.factor = rope.absent("factor") ? derived : rope.required("factor", 0, kFactorMax);
  // transformers reads 0 as the default, like a missing value.
  const auto rotations = [&](const char* key, double fallback) {
    const double value = rope.number(key, fallback, 0, kFactorMax);
    return value > 0 ? value : fallback;
  };
  r.beta_fast = rotations("beta_fast", 32);
  r.beta_slow = rotations("beta_slow", 1);
  r.truncate = rope.flag("truncate", true);
  // The ends of the ramp are logarithms to base theta.
  rope.require(r.theta != 1, "rope_theta", "is 1, for which yarn has no frequencies");
  const double scale = rope.number("mscale", 0, 0, kFactorMax);
  const double all = rope.number("mscale_all_dim", 0, 0, kFactorMax);
  const double inferred =
      scale > 0 && all > 0 ? mscale(r.factor, scale) / mscale(r.factor, all) : mscale(r.factor, 1);
  r.attention_factor = rope.number("attention_factor", inferred, kTiny, kFactorMax);
}

std::vector<double> read_divisors(const json& object, const char* key, int64_t count,
                                  Fields& rope) {
  const auto it = object.find(key);
  const bool list =
      it != object.end() && it->is_array() && static_cast<int64_t>(it->size()) == count &&
      std::ranges::all_of(*it,
                          [](const json& one) { return one.is_number() && one.get<double>() > 0; });
  rope.require(list, key,
               "is not a list of " + std::to_string(count) +
                   " numbers above 0, one for each pair of rotated elements");
  return list ? it->get<std::vector<double>>()
              : std::vector<double>(static_cast<size_t>(count), 1.0);
}

void read_longrope(const json& object, Fields& rope, const ModelConfig& sizes, RopeConfig& r) {
  const auto original = static_cast<double>(r.original_max);
  const double derived = static_cast<double>(sizes.max_position) / original;
  r.factor = rope.absent("factor") ? derived : rope.required("factor", 0, kFactorMax);
  const double inferred = r.factor <= 1 || r.original_max < 2
                              ? 1.0
                              : std::sqrt(1 + std::log(r.factor) / std::log(original));
  r.attention_factor = rope.number("attention_factor", inferred, kTiny, kFactorMax);
  const int64_t pairs = sizes.rotary_size() / 2;
  r.short_factor = read_divisors(object, "short_factor", pairs, rope);
  r.long_factor = read_divisors(object, "long_factor", pairs, rope);
}

/// The number of rotated elements of a head. transformers truncates the product to an integer.
void read_partial(const json& config, Fields& fields, const Defaults& defaults, ModelConfig& out) {
  const double fallback = defaults.partial_rotary;
  const char* const key_of_config = defaults.partial_rotary_key;
  double partial = fields.number(key_of_config, fallback > 0 ? fallback : 1);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto it = config.find(key);
    if (it == config.end() || !it->is_object() || !it->contains("partial_rotary_factor")) continue;
    Fields rope(*it, {}, std::string(key) + ".");
    partial = rope.number("partial_rotary_factor", partial);
    fields.inherit(rope);
  }
  if (fallback <= 0) {
    return fields.require(partial == 1, key_of_config, "is not 1; this family rotates whole heads");
  }
  fields.require(partial > 0 && partial <= 1, key_of_config, "is not above 0 and at most 1");
  if (!(partial > 0 && partial < 1)) return;
  const auto size = static_cast<int64_t>(static_cast<double>(out.head_dim) * partial);
  fields.require(
      size >= 2 && size % 2 == 0, key_of_config,
      "rotates " + std::to_string(size) + " elements of each head; rotary embedding needs pairs");
  out.rotary_dim = std::max<int64_t>(2, size - size % 2);
}

/// transformers 5 stores rope_theta and the scaling in rope_parameters; older versions store
/// rope_theta beside rope_scaling. rope_scaling wins if both exist.
void read_rope(const json& config, Fields& fields, const Defaults& defaults, ModelConfig& out) {
  out.rope.theta = fields.number(defaults.theta_key, defaults.theta, kTiny, kThetaMax);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto it = config.find(key);
    if (it == config.end() || it->is_null() || (it->is_object() && it->empty())) continue;
    if (!it->is_object()) return fields.require(false, key, "is not an object");
    out.rope = read_rope_object(*it, key, out.rope.theta, fields, out);
    return;
  }
}

}  // namespace

Activation read_activation(Fields& fields, const Defaults& defaults) {
  const std::string name = fields.text(defaults.activation_key, defaults.activation);
  if (name == "silu" || name == "swish") return Activation::Silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast")
    return Activation::GeluTanh;
  if (name == "gelu") return Activation::Gelu;
  if (name == "relu") return Activation::Relu;
  if (defaults.xielu && name == "xielu") return Activation::Xielu;
  fields.require(
      name == "relu2", defaults.activation_key,
      "is \"" + name +
          "\"; built are silu, gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, relu and relu2");
  return Activation::Relu2;
}

bool is_null(const json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && it->is_null();
}

RopeConfig read_rope_object(const json& object, const std::string& key, double theta,
                            Fields& fields, const ModelConfig& sizes) {
  Fields rope(object, {}, key + ".");
  RopeConfig r;
  r.theta = rope.number("rope_theta", theta, kTiny, kThetaMax);
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  // The pretraining length beside an object for all layers (Phi-3) overrides the one inside.
  constexpr char kOriginal[] = "original_max_position_embeddings";
  const bool of_all_layers = key.find('.') == std::string::npos;
  const bool beside = of_all_layers && !fields.absent(kOriginal);
  r.original_max = (beside ? fields : rope).positive(kOriginal, kIndexMax, sizes.max_position);
  if (type == "linear" || type == "dynamic") {
    r.scaling = type == "linear" ? Scaling::Linear : Scaling::Dynamic;
    r.factor = rope.required("factor", 0, kFactorMax);
    r.original_max = sizes.max_position;
  } else if (type == "llama3") {
    r.scaling = Scaling::Llama3;
    r.factor = rope.required("factor", 0, kFactorMax);
    r.low_freq_factor = rope.required("low_freq_factor", 0, kFactorMax);
    r.high_freq_factor = rope.required("high_freq_factor", r.low_freq_factor, kFactorMax);
  } else if (type == "yarn") {
    r.scaling = Scaling::Yarn;
    read_yarn(rope, sizes.max_position, r);
  } else if (type == "longrope" || type == "su") {
    r.scaling = Scaling::LongRope;
    read_longrope(object, rope, sizes, r);
  } else {
    rope.require(
        type == "default", "rope_type",
        "is \"" + type + "\"; built are default, linear, dynamic, llama3, yarn and longrope");
  }
  fields.inherit(rope);
  return r;
}

int64_t read_window(const json& config, Fields& fields, int64_t fallback) {
  if (is_null(config, "sliding_window")) return 0;
  if (fields.absent("sliding_window")) return fallback;
  return fields.positive("sliding_window", kIndexMax);
}

void read_windows(const json& config, Fields& fields, int64_t window,
                  const std::function<bool(int64_t layer)>& slides, ModelConfig& out) {
  out.windows.assign(static_cast<size_t>(out.num_layers), 0);
  if (fields.absent("layer_types")) {
    for (int64_t layer = 0; layer < out.num_layers; ++layer)
      out.windows[layer] = slides(layer) ? window : 0;
    return;
  }
  const json& types = config["layer_types"];
  const bool fits = types.is_array() && static_cast<int64_t>(types.size()) == out.num_layers;
  fields.require(fits, "layer_types", "is not a list with one entry per layer");
  for (int64_t layer = 0; fits && layer < out.num_layers; ++layer) {
    const bool slides_here = types[layer] == "sliding_attention";
    fields.require(slides_here || types[layer] == "full_attention", "layer_types",
                   "has " + json_brief(types[layer]) + "; built are full and sliding attention");
    fields.require(!slides_here || window > 0, "layer_types",
                   "asks for sliding attention, but sliding_window is missing, or "
                   "use_sliding_window is off");
    out.windows[layer] = slides_here ? window : 0;
  }
}

void same_windows(int64_t window, ModelConfig& out) {
  out.windows.assign(static_cast<size_t>(out.num_layers), window);
}

json rope_object_of(const json& config, const char* layer_type) {
  const auto all = config.find("rope_parameters");
  if (all == config.end() || !all->is_object()) return json::object();
  const auto one = all->find(layer_type);
  return one != all->end() && one->is_object() ? *one : json::object();
}

void read_shape(const json& config, Fields& fields, const Defaults& defaults, ModelConfig& out) {
  out.vocab_size = fields.positive("vocab_size", kIndexMax);
  out.hidden_size = fields.positive(defaults.hidden_key, kWidthMax);
  out.intermediate_size =
      fields.positive(defaults.inner_key, kInnerMax, defaults.inner_factor * out.hidden_size);
  out.num_layers = fields.positive(defaults.layers_key, kLayersMax);
  out.num_heads = fields.positive(defaults.heads_key, kWidthMax);
  out.num_kv_heads = out.num_heads;
  if (const char* key = defaults.kv_heads_key) {
    const bool missing = defaults.kv_heads > 0 && !config.contains(key);
    // If the class's default does not divide the heads, the tensors' shapes decide.
    const bool can_be = missing && out.num_heads % defaults.kv_heads == 0;
    out.num_kv_heads = fields.positive(key, kWidthMax, can_be ? defaults.kv_heads : out.num_heads);
  }
  out.max_position = fields.positive(defaults.max_position_key, kIndexMax, defaults.max_position);
  if (defaults.norm_eps_key)
    out.norm_eps = fields.number(defaults.norm_eps_key, defaults.norm_eps, 0, 1);
  else
    out.norm_eps = defaults.norm_eps;
  out.tied = fields.flag("tie_word_embeddings", defaults.tied);
  if (defaults.has_padding) {
    const bool null = is_null(config, "pad_token_id");
    int64_t padding =
        null ? -1 : fields.whole("pad_token_id", -kIndexMax, kIndexMax, defaults.padding);
    // torch counts a negative index from the end. Null means no index.
    if (padding < 0 && !null && !fields.absent("pad_token_id")) padding += out.vocab_size;
    out.padding_id = padding < out.vocab_size ? std::max<int64_t>(padding, -1) : -1;
  }
  // A null asks for the quotient also where the class has a number.
  const bool by_quotient = defaults.head_dim == 0 || is_null(config, "head_dim");
  const bool derived = by_quotient && fields.absent("head_dim");
  fields.require(!derived || out.hidden_size % out.num_heads == 0, defaults.heads_key,
                 std::string("does not divide ") + defaults.hidden_key);
  out.head_dim = fields.positive(
      "head_dim", kWidthMax,
      by_quotient ? std::max<int64_t>(out.hidden_size / out.num_heads, 1) : defaults.head_dim);
  fields.require(
      out.num_heads * out.head_dim <= kWidthMax, "head_dim",
      std::string("times ") + defaults.heads_key + " is above " + std::to_string(kWidthMax));
  out.learned_positions = defaults.learned_positions;
  if (!out.learned_positions) {
    read_partial(config, fields, defaults, out);
    if (!defaults.rope_by_layer_type) read_rope(config, fields, defaults, out);
    fields.require(out.head_dim % 2 == 0, "head_dim", "is odd; rotary embedding needs pairs");
  }
  fields.require(out.num_heads % out.num_kv_heads == 0,
                 defaults.kv_heads_key ? defaults.kv_heads_key : defaults.heads_key,
                 std::string("does not divide ") + defaults.heads_key);
  out.activation = read_activation(fields, defaults);
  out.dropout.attention = fields.probability("attention_dropout", 0.0);
}

void all_biases(Fields& fields, const char* key, bool fallback, ModelConfig& out) {
  out.qkv_bias = out.o_bias = fields.flag(key, fallback);
}

void all_biases(Fields& fields, const char* key, ModelConfig& out) {
  all_biases(fields, key, false, out);
}

void no_slices(Fields& fields) {
  fields.require(fields.whole("pretraining_tp", 0, INT64_MAX, 1) == 1, "pretraining_tp",
                 "is not 1; sliced products are not built, and 1 computes the same numbers");
}

void read_experts(Fields& fields, const ExpertKeys& keys, ModelConfig& out) {
  ExpertsConfig& experts = out.experts;
  // transformers 5 saves the count of some families under another family's name.
  const char* count = keys.count;
  for (const char* other : {"num_experts", "num_local_experts"})
    if (fields.absent(count)) count = other;
  if (fields.absent(count)) count = keys.count;
  const bool other_name = fields.absent(keys.per_token_key);
  const char* per_token = other_name ? "num_experts_per_tok" : keys.per_token_key;
  experts.count = fields.positive(count, kExpertsMax, keys.count_default);
  experts.per_token = fields.positive(per_token, kExpertsMax, keys.per_token);
  experts.inner = fields.positive(keys.inner, kInnerMax, keys.inner_default);
  fields.require(experts.per_token <= experts.count, per_token,
                 "is above " + std::to_string(experts.count) + ", the number of experts");
  const double balance = fields.number("router_aux_loss_coef", keys.balance, 0, kFactorMax);
  const bool wanted = fields.flag("output_router_logits", false);
  experts.can_balance = keys.can_balance;
  if (wanted && keys.can_balance) experts.balance = balance;
}

void read_sigmoid_experts(Fields& fields, const SigmoidKeys& keys, ModelConfig& out) {
  ExpertKeys plain = keys.experts;
  plain.can_balance = false;
  read_experts(fields, plain, out);
  ExpertsConfig& experts = out.experts;
  experts.sigmoid = experts.corrected = experts.exact_router = true;
  experts.rounds_weights = false;
  experts.least_sum = 1e-20;
  experts.normalized = fields.flag("norm_topk_prob", keys.normalized);
  experts.scale = fields.number("routed_scaling_factor", keys.scale, kTiny, kFactorMax);
  experts.groups = fields.positive("n_group", kExpertsMax, keys.groups);
  experts.groups_taken = fields.positive("topk_group", kExpertsMax, keys.groups_taken);
  if (keys.shared)
    experts.shared_inner = fields.positive(keys.shared, kExpertsMax, 1) * experts.inner;
  out.names.shared = "mlp.shared_experts";
  const int64_t in_group = experts.count / experts.groups;
  fields.require(
      experts.count % experts.groups == 0 && (experts.groups == 1 || in_group > 1), "n_group",
      "does not divide " + std::to_string(experts.count) + " experts into groups of two or more");
  fields.require(experts.groups_taken <= experts.groups &&
                     experts.per_token <= experts.groups_taken * in_group,
                 "topk_group", "is above n_group, or leaves fewer experts than a token passes");
  for (const auto& [key, built] :
       {std::pair{"topk_method", "noaux_tc"}, std::pair{"scoring_func", "sigmoid"}}) {
    const std::string value = fields.text(key, built);
    fields.require(value == built, key, "is \"" + value + "\"; built is " + built);
  }
}

void read_first_layers(const json& config, Fields& fields, int64_t fallback, ModelConfig& out) {
  const int64_t first = fields.whole("first_k_dense_replace", 0, kLayersMax, fallback);
  out.experts.dense.assign(static_cast<size_t>(out.num_layers), false);
  for (int64_t layer = 0; layer < std::min(first, out.num_layers); ++layer)
    out.experts.dense[layer] = true;
  if (fields.absent("mlp_layer_types")) return;
  const json& types = config["mlp_layer_types"];
  const bool fits =
      types.is_array() && static_cast<int64_t>(types.size()) == out.num_layers &&
      std::ranges::all_of(types, [](const json& one) { return one == "dense" || one == "sparse"; });
  fields.require(fits, "mlp_layer_types",
                 "is not a list of \"dense\" or \"sparse\" for each layer");
  for (int64_t layer = 0; fits && layer < out.num_layers; ++layer)
    out.experts.dense[layer] = types[layer] == "dense";
}

void no_auxiliary_loss(Fields& fields, ModelConfig& out) {
  out.experts.can_balance = false;
  fields.require(!fields.flag("output_router_logits", false), "output_router_logits",
                 "is true; the auxiliary loss of this family is not built");
}

namespace {

/// The factor that a scaled rope's mscale_all_dim gives the scores; it applies twice.
double mscale_of_scores(const json& config, Fields& fields, const RopeConfig& rope) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto it = config.find(key);
    if (it == config.end() || !it->is_object() || it->empty()) continue;
    Fields object(*it, {}, std::string(key) + ".");
    const double all = object.number("mscale_all_dim", 0, 0, kFactorMax);
    fields.inherit(object);
    const bool scaled = rope.scaling != RopeConfig::Scaling::Default && rope.factor > 1;
    return scaled && all > 0 ? 0.1 * all * std::log(rope.factor) + 1 : 1;
  }
  return 1;
}

}  // namespace

void read_latent(const json& config, Fields& fields, const LatentDefaults& defaults,
                 ModelConfig& out, const Defaults& shape) {
  const bool no_rank = is_null(config, "q_lora_rank");
  const LatentConfig latent{
      .query_rank = no_rank ? 0 : fields.positive("q_lora_rank", kWidthMax, defaults.query_rank),
      .rank = fields.positive("kv_lora_rank", kWidthMax, defaults.rank),
      .plain = fields.positive("qk_nope_head_dim", kWidthMax, defaults.plain),
      .rotated = fields.positive("qk_rope_head_dim", kWidthMax, defaults.rotated),
      .value = fields.positive("v_head_dim", kWidthMax, defaults.value)};
  json plain = config;
  plain["head_dim"] = std::min(latent.plain + latent.rotated, kWidthMax);
  out.rotary_dim = std::max<int64_t>(2, latent.rotated - latent.rotated % 2);
  Fields of_shape(plain, {}, "");
  Defaults without_kv = shape;
  without_kv.kv_heads_key = nullptr;
  read_shape(plain, of_shape, without_kv, out);
  fields.inherit(of_shape);
  out.latent = latent;
  if (const double mscale = mscale_of_scores(config, fields, out.rope); mscale != 1)
    out.attention_multiplier = out.attention_scale(0) * mscale * mscale;
  out.rope_in_pairs = true;
  all_biases(fields, "attention_bias", out);
  fields.require(latent.rotated % 2 == 0, "qk_rope_head_dim",
                 "is odd; rotary embedding needs pairs");
  fields.require(latent.value <= latent.plain + latent.rotated, "v_head_dim",
                 "is above qk_nope_head_dim + qk_rope_head_dim, which is not built");
}

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

}  // namespace dsj::layout

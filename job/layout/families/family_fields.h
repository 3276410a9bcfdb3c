// Shared by the readers of families (family_readers.h): the fields that most families have, with
// the defaults that differ. Internal to layout.
// Tested by: tests/job/layout/model_config_test.cc
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "job/layout/shape/config_fields.h"
#include "job/layout/shape/model_shape.h"

namespace dsj::layout {

// Limits far above every existing model. Within them no size, count or product of the plan
// overflows, and no list is too long to build. Token ids and positions are 32-bit numbers.
inline constexpr int64_t kWidthMax = int64_t{1} << 20;  ///< hidden size, heads, elements per head
inline constexpr int64_t kInnerMax = int64_t{1} << 23;
inline constexpr int64_t kLayersMax = 10'000;
inline constexpr int64_t kConvKernelMax = 64;
inline constexpr int64_t kExpertsMax = 4096;
inline constexpr int64_t kIndexMax = INT32_MAX;  ///< vocabulary size, positions
inline constexpr double kFactorMax = 1e9;
inline constexpr double kTiny = 1e-300;  ///< the smallest number if 0 is not allowed

/// How families differ in what config.json may omit, and in names of fields. Defaults are those of
/// transformers' configuration classes. A null key means that the family lacks the field.
struct Defaults {
  const char* hidden_key = "hidden_size";
  const char* layers_key = "num_hidden_layers";
  const char* heads_key = "num_attention_heads";
  const char* kv_heads_key = "num_key_value_heads";
  const char* inner_key = "intermediate_size";
  const char* max_position_key = "max_position_embeddings";
  int64_t inner_factor = 0;  ///< above 0: default as a multiple of the hidden size
  int64_t max_position = 2048;
  int64_t head_dim = 0;  ///< 0: hidden_size / num_attention_heads
  double norm_eps = 1e-6;
  const char* norm_eps_key = "rms_norm_eps";
  bool learned_positions = false;  ///< rope is not read
  double theta = 10000;
  const char* theta_key = "rope_theta";
  bool tied = false;
  double partial_rotary = 0;  ///< above 0: default of partial_rotary_factor; else it is not read
  const char* partial_rotary_key = "partial_rotary_factor";
  bool rope_by_layer_type = false;  ///< rope_parameters has an object per type of layer
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  bool xielu = false;       ///< the family's MLP may have this activation
  int64_t padding = -1;     ///< pad_token_id; -1: null
  bool has_padding = true;  ///< whether the embedding has a padding_idx
  /// Default number of key heads, if it divides the query heads. 0, or null in a file: as many as
  /// query heads.
  int64_t kv_heads = 0;
};

/// Reads sizes, norm_eps, ties, padding, rope, activation and attention_dropout.
void read_shape(const nlohmann::json& config, Fields& fields, const Defaults& defaults,
                ModelConfig& out);
/// Reads activation_key.
Activation read_activation(Fields& fields, const Defaults& defaults);
/// sliding_window; 0 if it is null, `fallback` if it is missing.
int64_t read_window(const nlohmann::json& config, Fields& fields, int64_t fallback);
/// Sets the layers with the window (0: none): by layer_types, a list of full_attention and
/// sliding_attention; if it is missing, by `slides`.
void read_windows(const nlohmann::json& config, Fields& fields, int64_t window,
                  const std::function<bool(int64_t layer)>& slides, ModelConfig& out);
/// Gives every layer the window (0: none), for classes that do not read layer_types.
void same_windows(int64_t window, ModelConfig& out);
/// Whether it is null, which differs from missing if the default is not null.
bool is_null(const nlohmann::json& config, const char* key);
/// The object of a type of layer in rope_parameters; {} if there is none.
nlohmann::json rope_object_of(const nlohmann::json& config, const char* layer_type);
/// Replaces mrope by plain rope: without pictures its three positions are equal.
void plain_rope(nlohmann::json& text);
/// Sets whether q, k, v and the output have biases.
void all_biases(Fields& fields, const char* key, ModelConfig& out);
void all_biases(Fields& fields, const char* key, bool fallback, ModelConfig& out);
/// Refuses sliced products (pretraining_tp).
void no_slices(Fields& fields);

// Default sets of layers with a window, if config.json has no layer_types.
inline bool every_layer(int64_t) {
  return true;
}
/// Every layer except each pattern-th; none if 0.
inline auto but_each(int64_t pattern) {
  return [pattern](int64_t layer) { return pattern > 0 && (layer + 1) % pattern != 0; };
}

/// The keys of a family's experts, which differ between families.
struct ExpertKeys {
  const char* count = "num_experts";
  int64_t count_default = 8;
  const char* inner = "moe_intermediate_size";
  int64_t inner_default = 0;  ///< 0: required
  int64_t per_token = 2;
  double balance = 0.001;
  const char* per_token_key = "num_experts_per_tok";
  bool can_balance = true;  ///< false: transformers' class has no auxiliary loss
};

/// Reads the number of experts, the number per token, their width, and the auxiliary loss, which is
/// on only with output_router_logits, as in transformers.
void read_experts(Fields& fields, const ExpertKeys& keys, ModelConfig& out);
/// Experts chosen by sigmoids with a correction (DeepSeek-V3). Their classes have no auxiliary
/// loss.
struct SigmoidKeys {
  ExpertKeys experts = {.count = "n_routed_experts", .count_default = 128, .per_token = 8};
  double scale = 1;
  bool normalized = true;
  int64_t groups = 1, groups_taken = 1;
  const char* shared = "n_shared_experts";  ///< number of shared experts; null: the family has none
};
void read_sigmoid_experts(Fields& fields, const SigmoidKeys& keys, ModelConfig& out);
/// The layers with a plain MLP: by mlp_layer_types, or the first first_k_dense_replace ones.
void read_first_layers(const nlohmann::json& config, Fields& fields, int64_t fallback,
                       ModelConfig& out);
/// Refuses an auxiliary loss other than that of routing.h.
void no_auxiliary_loss(Fields& fields, ModelConfig& out);

/// Default sizes of latent attention.
struct LatentDefaults {
  int64_t query_rank = 1536, rank = 512, plain = 128, rotated = 64, value = 128;
};
/// read_shape(), and latent attention. Its rope rotates pairs.
void read_latent(const nlohmann::json& config, Fields& fields, const LatentDefaults& defaults,
                 ModelConfig& out, const Defaults& shape = {});

/// Reads the rope object under `key`; `theta` is its default.
RopeConfig read_rope_object(const nlohmann::json& object, const std::string& key, double theta,
                            Fields& fields, const ModelConfig& sizes);

}  // namespace dsj::layout

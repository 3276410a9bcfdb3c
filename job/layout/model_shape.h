// A model's shape, torch-free: what a config.json (model_config.h) says of the layers. Biases, norms,
// windows and rope are data; only `block` chooses code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dsj::layout {

/// The two shapes of a decoder layer.
enum class Block {
  Llama,  ///< weights stored [out, in]; all else is data
  Gpt2,   ///< LayerNorm, learned positions, gelu_new, weights stored [in, out]
};

/// Rotary positions, as in transformers' modeling_rope_utils.
struct RopeConfig {
  enum class Scaling { Default, Linear, Dynamic, Llama3, Yarn, LongRope, Proportional };
  Scaling scaling = Scaling::Default;
  double theta = 10000.0;
  double factor = 1;                                 ///< all but Default
  double low_freq_factor = 1, high_freq_factor = 4;  ///< Llama3
  double beta_fast = 32, beta_slow = 1;              ///< Yarn
  bool truncate = true;                              ///< Yarn: the ramp's ends are whole numbers
  double attention_factor = 1;                       ///< Yarn, LongRope: on cosines and sines
  /// LongRope: divisors of the frequencies, for sequences up to original_max and for longer ones.
  std::vector<double> short_factor, long_factor;
  /// Proportional: so many elements of a head turn, at the frequencies that they would have if all did.
  int64_t turning = 0;
  /// Tokens: the pretraining length of Llama3, Yarn and LongRope, Dynamic's unscaled length.
  int64_t original_max = 0;
};

enum class NormKind {
  Rms,           ///< w * (x / rms), each factor rounded to x's type: Llama
  RmsOnce,       ///< the same, rounded once: OLMo 2
  RmsPlusOne,    ///< (1 + w) * (x / rms), rounded once: Gemma
  Layer,         ///< LayerNorm
  LayerPlusOne,  ///< LayerNorm with 1 + w: Nemotron
};

/// Of an MLP. Their names in config.json: silu, gelu_pytorch_tanh or gelu_new or gelu_fast, gelu,
/// relu, relu2, xielu. The last has parameters of its own (engine/models/xielu.h), without a gate.
enum class Activation { Silu, GeluTanh, Gelu, Relu, Relu2, Xielu };

/// How a family names its modules in the checkpoint.
struct Names {
  const char* base = "model.";  ///< before all names but the head's
  const char* embedding = "embed_tokens";
  const char* positions = "";  ///< learned ones
  const char* layers = "layers";
  const char* norm = "norm";  ///< before the head
  const char* head = "lm_head";
  // Of a layer, behind its number:
  const char* norm1 = "input_layernorm";
  const char* attention = "self_attn";  ///< before the names of its parts
  const char* delta = "linear_attn";    ///< the same, of a layer with the delta rule
  const char* qkv = "qkv_proj";         ///< where one weight holds all three
  const char* o = "o_proj";
  const char* q_norm = "q_norm";
  const char* k_norm = "k_norm";
  const char* post_attention_norm = "post_attention_layernorm";  ///< of attention's output
  const char* norm2 = "post_attention_layernorm";                ///< before the MLP
  const char* post_mlp_norm = "post_feedforward_layernorm";      ///< of the MLP's output
  const char* layer_scale = "layer_scalar";
  const char* gate_up = "mlp.gate_up_proj";  ///< where one weight holds both
  const char* up = "mlp.up_proj";
  const char* down = "mlp.down_proj";
  const char* activation = "mlp.act_fn";  ///< where it has parameters
  // Of a layer with experts:
  const char* router = "mlp.gate";
  const char* experts = "mlp.experts";  ///< before an expert's number
  const char* expert_gate = "gate_proj";
  const char* expert_up = "up_proj";
  const char* expert_down = "down_proj";
  const char* stacked_up = "mlp.experts.gate_up_proj";  ///< where one tensor holds all experts'
  const char* stacked_down = "mlp.experts.down_proj";
  const char* correction = "mlp.gate.e_score_correction_bias";
  const char* shared = "mlp.shared_expert";
  const char* shared_gate_up = nullptr;  ///< where one weight holds both
  const char* shared_down = "down_proj";
  const char* shared_scale = "mlp.shared_expert_gate";
  // Of experts beside a plain MLP:
  const char* router_scale = "router.scale";
  const char* expert_scale = "router.per_expert_scale";
  const char* experts_norm = "pre_feedforward_layernorm_2";
  const char* post_plain_norm = "post_feedforward_layernorm_1";
  const char* post_experts_norm = "post_feedforward_layernorm_2";
};

/// Probabilities, in training only. `residual`: of what attention and the MLP add to the residual.
struct DropoutConfig {
  double embedding = 0, attention = 0, residual = 0;
};

/// A mixture of experts: a router sends each token through a few of many MLPs.
struct ExpertsConfig {
  int64_t count = 0;           ///< 0: every layer has a plain MLP
  int64_t per_token = 0;       ///< experts that a token passes
  int64_t inner = 0;           ///< intermediate size of one
  int64_t shared_inner = 0;    ///< of the expert that every token passes as well; 0: there is none
  bool shared_scaled = false;  ///< its result is multiplied by the sigmoid of one more product
  std::vector<bool> dense = {};  ///< [layer]: it has a plain MLP; empty: none has
  bool sigmoid = false;          ///< an expert's score is the sigmoid of its logit, not a softmax
  /// The choice goes by scores plus a bias for each expert. It is not trained, stays in fp32, and
  /// weights do not have it (names.correction).
  bool corrected = false;
  /// The choice is among the experts of `groups_taken` of so many groups of neighbours: those whose two
  /// best scores add up to most.
  int64_t groups = 1, groups_taken = 1;
  bool normalized = false;     ///< the weights of a token's experts add up to 1
  double least_sum = 0;        ///< what their sum is at least, before they are divided by it
  bool rounds_weights = true;  ///< they are rounded to the type of what experts read
  double scale = 1;            ///< on the weights
  /// Coefficient of the auxiliary loss that balances the experts' loads; 0: it is not computed.
  double balance = 0;
  bool stacked = false;  ///< one tensor [count, out, in] holds gate and up of all experts, one down
  bool turned = false;   ///< stacked tensors are [count, in, out]
  /// Stacked tensors are [count, in, out], with biases, and the columns of gate and up alternate.
  bool alternates = false;
  bool exact_router = false;  ///< its product is in fp32
  bool router_bias = false;
  /// A layer has a plain MLP too, which reads what it would read alone. Router and experts read the
  /// residual, each behind a norm of its own; the router's has a factor of 1 / sqrt(hidden size) beside
  /// its weight. The weight of a choice has a trained factor for its expert. What the MLP and the
  /// experts give is normed, each by itself, and added.
  bool beside_mlp = false;
  /// Above 0: gate and up are clamped to it, and the activation is (up + 1) gate sigmoid(alpha gate).
  double clamp = 0;
  double alpha = 0;
};

/// Multi-head latent attention: queries, and keys with values, come from narrow vectors (latents) that
/// have a norm of their own. The keys' rotated part is one for all heads.
struct LatentConfig {
  int64_t query_rank = 0;  ///< 0: queries come from the hidden state
  int64_t rank = 0;        ///< of keys and values; 0: the model has plain attention
  int64_t plain = 0;       ///< elements of a query or key head that are not rotated
  int64_t rotated = 0;     ///< and of those that are
  int64_t value = 0;       ///< elements of a value head
};

/// Layers with the gated delta rule in place of attention (engine/models/delta.h).
struct DeltaConfig {
  int64_t key_heads = 0;               ///< of queries, and of keys; 0: the model has no such layer
  int64_t value_heads = 0;             ///< a multiple of key_heads: neighbours read one key head
  int64_t key_dim = 0, value_dim = 0;  ///< elements of a head
  int64_t kernel = 0;                  ///< tokens that the convolution sees, the own one included
  std::vector<bool> layers = {};       ///< [layer]: it is one
  /// Two weights hold all products, for each key head: its query, itself, its values, their gates;
  /// and the strengths and decays of its values. Else four, one kind after the other.
  bool by_group = false;

  int64_t key_size() const { return key_heads * key_dim; }
  int64_t value_size() const { return value_heads * value_dim; }
  /// Queries, keys and values, which go through the convolution.
  int64_t conv_size() const { return 2 * key_size() + value_size(); }
  /// With the strengths, the decays and the gates: all columns of the products.
  int64_t width() const { return conv_size() + 2 * value_heads + value_size(); }
};

/// What a layer has in place of the model's heads (ModelConfig::of_layer).
struct LayerShape {
  int64_t head_dim = 0;
  int64_t num_kv_heads = 0;
  bool keys_are_values = false;
  bool operator==(const LayerShape&) const = default;
};

/// Layers of one kind have parameters of the same shapes and run the same code.
struct LayerKinds {
  std::vector<int> of;         ///< [layer]: the number of its kind, from 0
  std::vector<int64_t> first;  ///< [kind]: its first layer
};

struct ModelConfig {
  std::string model_type;  ///< "qwen2" ...
  Block block = Block::Llama;
  bool is_text_part =
      false;  ///< of a model that has more: an export copies the rest of its weights
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;     ///< query heads
  int64_t num_kv_heads = 0;  ///< key and value heads; divides num_heads
  int64_t head_dim = 0;      ///< elements, even; num_heads * head_dim may differ from hidden_size
  std::vector<LayerShape> shapes = {};  ///< [layer]; empty: all layers have the model's heads
  /// There is no product for values: they are what the keys' gives, before norm and rope.
  bool keys_are_values = false;
  int64_t max_position = 0;  ///< tokens
  NormKind norm = NormKind::Rms;
  bool norm_weight = true;  ///< without: Layer alone
  bool norm_bias = false;   ///< Layer, LayerPlusOne
  double norm_eps = 1e-6;
  bool pre_norms = true;    ///< of what attention and the MLP read
  bool post_norms = false;  ///< of what they give, before it is added to the residual
  /// The MLP reads what attention reads, not the sum; each has its own norm of it, or both have one.
  /// Without post_norms.
  bool parallel = false, shared_norm = false;
  bool learned_positions = false;  ///< positions are parameters, and nothing is rotated
  int64_t first_position = 0;      ///< the row of position 0 among them
  RopeConfig rope;
  /// Of layers with a window; absent: as in all layers.
  std::optional<RopeConfig> local_rope;
  int64_t rotary_dim = 0;          ///< the first elements of each head are rotated; 0: all
  bool rope_in_pairs = false;      ///< elements 2i and 2i+1 turn together, not i and i + half
  std::vector<bool> no_rope = {};  ///< [layer]: it has no positions; empty: all have
  /// Above 0: the query of position p is multiplied by 1 + query_growth log(1 + floor(p / length)).
  double query_growth = 0;
  int64_t query_growth_length = 1;  ///< tokens
  bool tied = false;                ///< lm_head is the embedding
  /// The token whose row of the embedding gets no gradient as an input (nn.Embedding's padding_idx); -1:
  /// there is none.
  int64_t padding_id = -1;
  bool qkv_bias = true;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  ///< a norm over each query and key head
  bool qk_norm_whole =
      false;  ///< that norm is over all query heads, and over all key heads, at once
  bool qk_norm_after_rope = false;
  bool value_norm = false;  ///< beside qk_norm: a norm without a weight over each value head
  bool fused_qkv = false;   ///< one weight holds q, k and v
  /// That weight holds, for each key head: its query heads, itself, its value head. Else all query
  /// heads, all key heads, all value heads.
  bool qkv_by_group = false;
  bool fused_gate_up = false;  ///< one weight holds gate and up
  bool gated = true;           ///< the MLP is down(act(gate) * up), else down(act(up))
  Activation activation = Activation::Silu;
  ExpertsConfig experts;
  LatentConfig latent;
  DeltaConfig delta;
  /// The query projection gives each head's query and a gate; attention's result is multiplied by its
  /// sigmoid.
  bool output_gate = false;
  bool sinks = false;  ///< each query head has a score beside the keys', whose probability is lost
  Names names;
  /// [layer]: how many tokens a token sees, itself included; 0: all before it. Empty: all 0.
  std::vector<int64_t> windows;
  bool scale_attention = true;                 ///< scores / sqrt(head_dim)
  std::optional<double> attention_multiplier;  ///< scores * this, instead
  bool scale_by_layer = false;                 ///< also / (layer + 1)
  double embedding_scale = 1;                  ///< on the embedding's rows
  bool rounds_embedding_scale = false;         ///< to their type
  double residual_scale = 1;  ///< on what attention and the MLP add to the residual
  bool layer_scale = false;   ///< a number, not trained, multiplies a layer's result: the residual
  bool head_bias = false;
  double logits_scale = 1;  ///< on the logits
  /// A reward model (job/layout/reward_model.h): in place of the head a row has one score.
  bool scored = false;
  double score_deviation = 0.02;  ///< of a new score's weights (initializer_range)
  double logits_cap = 0;          ///< above 0: they are cap * tanh(logits / cap)
  double scores_cap = 0;          ///< the same, of attention's scaled scores
  DropoutConfig dropout;

  /// Rows of the head's weight.
  int64_t head_rows() const { return scored ? 1 : vocab_size; }
  int64_t query_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  int64_t window(int64_t layer) const { return windows.empty() ? 0 : windows[layer]; }
  int64_t rotary_size() const { return rotary_dim > 0 ? rotary_dim : head_dim; }
  bool rotates(int64_t layer) const {
    return !learned_positions && (no_rope.empty() || !no_rope[layer]);
  }
  bool rotates_locally(int64_t layer) const { return local_rope.has_value() && window(layer) > 0; }
  bool rms() const { return norm <= NormKind::RmsPlusOne; }
  /// The plain form of attention runs, which holds scores: flash kernels have no such operation.
  bool plain_attention() const { return dropout.attention > 0 || scores_cap > 0; }
  /// The layer is the plain one: the products' results go straight to the residual.
  bool adds_products() const { return !post_norms && residual_scale == 1 && dropout.residual == 0; }
  bool has_experts(int64_t layer) const {
    return experts.count > 0 && (experts.dense.empty() || !experts.dense[layer]);
  }
  /// The model as it is in this layer: without shapes.
  ModelConfig of_layer(int64_t layer) const;
  LayerKinds layer_kinds() const;
  int64_t head_dim_of(int64_t layer) const {
    return shapes.empty() ? head_dim : shapes[static_cast<size_t>(layer)].head_dim;
  }
  int64_t largest_head() const;
  bool has_delta(int64_t layer) const { return !delta.layers.empty() && delta.layers[layer]; }
  /// Columns of the product that makes queries.
  int64_t query_width() const { return output_gate ? 2 * query_size() : query_size(); }
  /// Columns of the MLP's first product.
  int64_t mlp_width() const { return gated ? 2 * intermediate_size : intermediate_size; }
  /// The factor on the scores.
  double attention_scale(int64_t layer) const;
  /// Tokens of the longest sequence that it was made for: max_position, unless rope scaling grows
  /// with the sequence. Behind it rope goes on; learned positions end.
  int64_t longest_sequence() const;
  /// Parameters of a norm.
  int norm_parameters() const { return (norm_weight ? 1 : 0) + (norm_bias ? 1 : 0); }
};

}  // namespace dsj::layout

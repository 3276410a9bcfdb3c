// A model's shape, torch-free: the layers as config.json (model_config.h) describes them. Biases,
// norms, windows and rope are data; only `block` selects code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dsj::layout {

/// The two shapes of a decoder layer.
enum class Block {
  Llama,  ///< weights stored [out, in]; everything else is data
  Gpt2,   ///< LayerNorm, learned positions, gelu_new, weights stored [in, out]
};

/// Rotary positions, as in transformers' modeling_rope_utils.
struct RopeConfig {
  enum class Scaling { Default, Linear, Dynamic, Llama3, Yarn, LongRope, Proportional };
  Scaling scaling = Scaling::Default;
  double theta = 10000.0;
  double factor = 1;                                 ///< for all but Default
  double low_freq_factor = 1, high_freq_factor = 4;  ///< Llama3
  double beta_fast = 32, beta_slow = 1;              ///< Yarn
  bool truncate = true;                              ///< Yarn: the ramp ends at whole numbers
  double attention_factor = 1;                       ///< Yarn, LongRope: of cosines and sines
  /// LongRope: divisors of the frequencies, for sequences up to original_max and for longer ones.
  std::vector<double> short_factor, long_factor;
  /// Proportional: the number of rotated elements per head; their frequencies are as if all rotated.
  int64_t turning = 0;
  /// Tokens: the pretraining length for Llama3, Yarn and LongRope; the unscaled length for Dynamic.
  int64_t original_max = 0;
};

enum class NormKind {
  Rms,           ///< w * (x / rms), each factor rounded to x's type: Llama
  RmsOnce,       ///< the same, rounded once: OLMo 2
  RmsPlusOne,    ///< (1 + w) * (x / rms), rounded once: Gemma
  Layer,         ///< LayerNorm
  LayerPlusOne,  ///< LayerNorm with 1 + w: Nemotron
};

/// Activations of an MLP. Names in config.json: silu, gelu_pytorch_tanh or gelu_new or gelu_fast,
/// gelu, relu, relu2, xielu. xielu has parameters (engine/models/ops/xielu.h) and no gate.
enum class Activation { Silu, GeluTanh, Gelu, Relu, Relu2, Xielu };

/// Names of a family's modules in the checkpoint.
struct Names {
  const char* base = "model.";  ///< prefix of all names except the head's
  const char* embedding = "embed_tokens";
  const char* positions = "";  ///< if positions are learned
  const char* layers = "layers";
  const char* norm = "norm";  ///< before the head
  const char* head = "lm_head";
  // In a layer, after its number:
  const char* norm1 = "input_layernorm";
  const char* attention = "self_attn";  ///< prefix of its parts
  const char* delta = "linear_attn";    ///< the same for a layer with the delta rule
  const char* conv = "conv";            ///< the same for a layer with a convolution
  const char* qkv = "qkv_proj";         ///< if one weight contains all three
  const char* o = "o_proj";
  const char* q_norm = "q_norm";
  const char* k_norm = "k_norm";
  const char* post_attention_norm = "post_attention_layernorm";  ///< of attention's output
  const char* norm2 = "post_attention_layernorm";                ///< before the MLP
  const char* post_mlp_norm = "post_feedforward_layernorm";      ///< of the MLP's output
  const char* layer_scale = "layer_scalar";
  // With an input of each layer; the first three have no number:
  const char* layer_table = "embed_tokens_per_layer";
  const char* layer_projection = "per_layer_model_projection";
  const char* layer_projection_norm = "per_layer_projection_norm";
  const char* layer_input_gate = "per_layer_input_gate";
  const char* layer_input_out = "per_layer_projection";
  const char* post_layer_input_norm = "post_per_layer_input_norm";
  const char* gate_up = "mlp.gate_up_proj";  ///< if one weight contains both
  const char* gate = "mlp.gate_proj";
  const char* up = "mlp.up_proj";
  const char* down = "mlp.down_proj";
  const char* activation = "mlp.act_fn";  ///< if it has parameters
  // In a layer with experts:
  const char* router = "mlp.gate";
  const char* experts = "mlp.experts";  ///< before an expert's number
  const char* expert_gate = "gate_proj";
  const char* expert_up = "up_proj";
  const char* expert_down = "down_proj";
  const char* stacked_up = "mlp.experts.gate_up_proj";  ///< if one tensor contains all experts
  const char* stacked_down = "mlp.experts.down_proj";
  const char* experts_module = "mlp.experts";  ///< in transformers, whose names PEFT's files have
  const char* router_module = nullptr;         ///< the same; null: as in files
  const char* correction = "mlp.gate.e_score_correction_bias";
  const char* shared = "mlp.shared_expert";
  const char* shared_gate_up = nullptr;  ///< if one weight contains both
  const char* shared_down = "down_proj";
  const char* shared_scale = "mlp.shared_expert_gate";
  // With experts beside a plain MLP:
  const char* router_scale = "router.scale";
  const char* expert_scale = "router.per_expert_scale";
  const char* experts_norm = "pre_feedforward_layernorm_2";
  const char* post_plain_norm = "post_feedforward_layernorm_1";
  const char* post_experts_norm = "post_feedforward_layernorm_2";
};

/// Probabilities, in training only. `residual`: of the outputs of attention and the MLP.
struct DropoutConfig {
  double embedding = 0, attention = 0, residual = 0;
};

/// A mixture of experts: a router sends each token through a few of many MLPs.
struct ExpertsConfig {
  int64_t count = 0;             ///< 0: every layer has a plain MLP
  int64_t per_token = 0;         ///< experts per token
  int64_t inner = 0;             ///< intermediate size of one expert
  int64_t shared_inner = 0;      ///< of the expert that every token uses as well; 0: none
  bool shared_scaled = false;    ///< its result is scaled by the sigmoid of one more product
  std::vector<bool> dense = {};  ///< [layer]: whether it has a plain MLP; empty: none has
  bool sigmoid = false;          ///< scores are sigmoids of the logits, not a softmax
  /// Experts are chosen by score plus a bias per expert (names.correction). The bias is not
  /// trained, stays in fp32, and does not affect the weights.
  bool corrected = false;
  /// Experts are chosen from `groups_taken` of `groups` groups of neighbours: those with the
  /// largest sum of their two best scores.
  int64_t groups = 1, groups_taken = 1;
  bool normalized = false;     ///< the weights of a token's experts sum to 1
  double least_sum = 0;        ///< minimum of that sum before the division
  double sum_shift = 0;        ///< added to that sum
  bool rounds_weights = true;  ///< to the type of the experts' input
  double scale = 1;            ///< factor of the weights
  /// Coefficient of the auxiliary loss that balances the experts' loads; 0: no such loss.
  double balance = 0;
  bool can_balance = false;  ///< transformers' class has that loss
  bool stacked = false;      ///< one tensor [count, out, in] has gate and up of all, one has down
  bool turned = false;       ///< stacked tensors are [count, in, out]
  /// Stacked tensors are [count, in, out], with biases, and the columns of gate and up alternate.
  bool alternates = false;
  bool exact_router = false;  ///< its product runs in fp32
  bool router_bias = false;
  /// A layer has a plain MLP too, with its usual input. Router and experts read the residual, each
  /// after its own norm; the router's norm has a factor 1 / sqrt(hidden size) besides its weight.
  /// An expert's weight has a trained factor. The results of the MLP and of the experts are normed
  /// separately and added.
  bool beside_mlp = false;
  /// Above 0: clamps gate and up to it; the activation is (up + 1) gate sigmoid(alpha gate).
  double clamp = 0;
  double alpha = 0;
};

/// Multi-head latent attention: queries, and keys with values, come from narrow vectors (latents)
/// with their own norms. All heads share the rotated part of the keys.
struct LatentConfig {
  int64_t query_rank = 0;  ///< 0: queries come from the hidden state
  int64_t rank = 0;        ///< of keys and values; 0: plain attention
  int64_t plain = 0;       ///< unrotated elements of a query or key head
  int64_t rotated = 0;     ///< rotated elements of it
  int64_t value = 0;       ///< elements of a value head
};

/// Layers with the gated delta rule instead of attention (engine/models/mixers/delta.h).
struct DeltaConfig {
  int64_t key_heads = 0;               ///< of queries, and of keys; 0: the model has no such layer
  int64_t value_heads = 0;             ///< a multiple of key_heads: neighbours share a key head
  int64_t key_dim = 0, value_dim = 0;  ///< elements per head
  int64_t kernel = 0;                  ///< tokens that the convolution sees, including its own
  std::vector<bool> layers = {};       ///< [layer]: whether it has the delta rule
  /// Two weights contain all products, grouped by key head: query, key, its values, their gates;
  /// and strengths and decays of its values. If not, four weights, one kind after the other.
  bool by_group = false;
  /// Mamba 2 instead: the state is not corrected by what it knows, and keys
  /// are not normalised. The columns of its one product are gates, values, keys, queries, steps.
  bool mamba = false;
  bool conv_bias = false;  ///< only Mamba 2's convolution may have one

  int64_t key_size() const { return key_heads * key_dim; }
  int64_t value_size() const { return value_heads * value_dim; }
  /// Queries, keys and values, which pass the convolution.
  int64_t conv_size() const { return 2 * key_size() + value_size(); }
  /// All columns of the products: also strengths, decays and gates; Mamba 2: steps and gates.
  int64_t width() const { return conv_size() + (mamba ? 1 : 2) * value_heads + value_size(); }
};

/// Layers with a gated causal convolution over a few tokens instead of attention
/// (engine/models/mixers/short_conv.h).
struct ConvConfig {
  int64_t kernel = 0;             ///< tokens that it sees, including its own; 0: no such layer
  std::vector<bool> layers = {};  ///< [layer]: whether it has the convolution
};

/// What a layer has before its MLP.
enum class Mixer { Attention, Delta, Conv };

/// The sizes of a layer that differ from the model's (ModelConfig::of_layer).
struct LayerShape {
  int64_t head_dim = 0;
  int64_t num_kv_heads = 0;
  bool keys_are_values = false;
  bool shares_keys = false;
  int64_t intermediate_size = 0;  ///< 0: the model's
  bool operator==(const LayerShape&) const = default;
};

/// Groups layers whose parameters have the same shapes and that run the same code.
struct LayerKinds {
  std::vector<int> of;         ///< [layer]: the index of its kind
  std::vector<int64_t> first;  ///< [kind]: its first layer
};

struct ModelConfig {
  std::string model_type;  ///< "qwen2" ...
  Block block = Block::Llama;
  /// The model is the text part of a larger one: an export copies its other weights.
  bool is_text_part = false;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;     ///< query heads
  int64_t num_kv_heads = 0;  ///< key and value heads; divides num_heads
  int64_t head_dim = 0;      ///< elements, even; num_heads * head_dim may differ from hidden_size
  std::vector<LayerShape> shapes = {};  ///< [layer]; empty if all layers have the model's heads
  /// Values have no product: they are the keys' result before norm and rope.
  bool keys_are_values = false;
  /// Keys and values are those of an earlier layer (key_layers), after norm and rope; it has no
  /// parameters for them.
  bool shares_keys = false;
  std::vector<int64_t> key_layers = {};  ///< [layer]: whose keys it uses; empty: each its own
  /// Above 0: each layer has an input of this width besides the residual. It comes from a second
  /// embedding of the token and from the first; after its MLP, a layer adds a gated projection of
  /// it to the residual (engine/models/unit/carried.h).
  int64_t layer_input = 0;
  int64_t max_position = 0;  ///< tokens
  NormKind norm = NormKind::Rms;
  bool norm_weight = true;  ///< false only for Layer
  bool norm_bias = false;   ///< Layer, LayerPlusOne
  double norm_eps = 1e-6;
  bool pre_norms = true;    ///< norms of the inputs of attention and the MLP
  bool post_norms = false;  ///< norms of their outputs, before the addition to the residual
  /// The MLP reads attention's input, not the sum. Each has its own norm of it, or both share one.
  /// Excludes post_norms.
  bool parallel = false, shared_norm = false;
  bool learned_positions = false;  ///< positions are parameters, and there is no rope
  int64_t first_position = 0;      ///< the row of position 0 in them
  RopeConfig rope;
  /// Of layers with a window; unset if the same as in other layers.
  std::optional<RopeConfig> local_rope;
  int64_t rotary_dim = 0;          ///< the first elements of each head are rotated; 0: all
  bool rope_in_pairs = false;      ///< rotates elements 2i and 2i+1 together, not i and i + half
  std::vector<bool> no_rope = {};  ///< [layer]: whether it has no positions; empty: all have
  /// Above 0: scales the query of position p by 1 + query_growth log(1 + floor(p / length)).
  double query_growth = 0;
  int64_t query_growth_length = 1;  ///< tokens
  bool tied = false;                ///< lm_head is the embedding
  /// The token whose embedding row gets no gradient as an input (nn.Embedding's padding_idx); -1 if
  /// none.
  int64_t padding_id = -1;
  bool qkv_bias = true;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  ///< a norm over each query and key head
  /// The norm is over all query heads at once, and over all key heads at once.
  bool qk_norm_whole = false;
  bool qk_norm_after_rope = false;
  bool value_norm = false;  ///< with qk_norm: also a norm without weight over each value head
  bool fused_qkv = false;   ///< one weight contains q, k and v
  /// That weight contains, for each key head: its query heads, its key head, its value head. If
  /// not: all query heads, all key heads, all value heads.
  bool qkv_by_group = false;
  bool fused_gate_up = false;  ///< one weight contains gate and up
  bool gated = true;           ///< the MLP is down(act(gate) * up), else down(act(up))
  Activation activation = Activation::Silu;
  ExpertsConfig experts;
  LatentConfig latent;
  DeltaConfig delta;
  ConvConfig conv;
  /// The query projection yields each head's query and a gate; attention's result is multiplied by
  /// the gate's sigmoid.
  bool output_gate = false;
  bool sinks = false;  ///< each query head has an extra score, whose probability is dropped
  Names names;
  /// [layer]: how many tokens a token sees, including itself; 0: all before it. Empty: all 0.
  std::vector<int64_t> windows;
  bool scale_attention = true;                 ///< scores / sqrt(head_dim)
  std::optional<double> attention_multiplier;  ///< replaces it: scores * this
  bool scale_by_layer = false;                 ///< also / (layer + 1)
  double embedding_scale = 1;                  ///< factor of the embedding's rows
  bool rounds_embedding_scale = false;         ///< to the type of the rows
  double residual_scale = 1;                   ///< factor of the outputs of attention and the MLP
  bool layer_scale = false;  ///< scales a layer's result, the residual, by a frozen number
  bool head_bias = false;
  double logits_scale = 1;  ///< factor of the logits
  /// A reward model (job/layout/reward_model.h): a row has one score instead of a head.
  bool scored = false;
  double score_deviation = 0.02;  ///< of the weights of a new score (initializer_range)
  double logits_cap = 0;          ///< above 0: logits are cap * tanh(logits / cap)
  double scores_cap = 0;          ///< the same for attention's scaled scores
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
  /// Whether attention runs in plain form, which holds the scores: flash kernels lack this.
  bool plain_attention() const { return dropout.attention > 0 || scores_cap > 0; }
  /// Whether products' results are added to the residual without further steps.
  bool adds_products() const { return !post_norms && residual_scale == 1 && dropout.residual == 0; }
  bool has_experts(int64_t layer) const {
    return experts.count > 0 && (experts.dense.empty() || !experts.dense[layer]);
  }
  /// The model as seen by this layer: without `shapes`.
  ModelConfig of_layer(int64_t layer) const;
  LayerKinds layer_kinds() const;
  int64_t head_dim_of(int64_t layer) const {
    return shapes.empty() ? head_dim : shapes[static_cast<size_t>(layer)].head_dim;
  }
  int64_t largest_head() const;
  int64_t key_layer(int64_t layer) const {
    return key_layers.empty() ? layer : key_layers[static_cast<size_t>(layer)];
  }
  /// Whether other layers use this layer's keys and values.
  bool gives_keys(int64_t layer) const;
  /// Whether layers use more than the residual of the layer before (engine/models/unit/carried.h).
  bool carries() const { return layer_input > 0 || !key_layers.empty(); }
  bool has_delta(int64_t layer) const { return !delta.layers.empty() && delta.layers[layer]; }
  bool has_conv(int64_t layer) const { return !conv.layers.empty() && conv.layers[layer]; }
  Mixer mixer(int64_t layer) const {
    return has_delta(layer) ? Mixer::Delta : has_conv(layer) ? Mixer::Conv : Mixer::Attention;
  }
  /// Whether some layers carry a state from token to token, which cannot be truncated.
  bool has_states() const { return delta.key_heads > 0 || conv.kernel > 0; }
  /// Columns of the query projection.
  int64_t query_width() const { return output_gate ? 2 * query_size() : query_size(); }
  /// Columns of the MLP's first product.
  int64_t mlp_width() const { return gated ? 2 * intermediate_size : intermediate_size; }
  /// The factor of the scores.
  double attention_scale(int64_t layer) const;
  /// Tokens of the longest sequence that the model was made for: max_position, unless rope scaling
  /// extends with the sequence. Rope continues beyond it; learned positions end.
  int64_t longest_sequence() const;
  /// The number of parameters of a norm.
  int norm_parameters() const { return (norm_weight ? 1 : 0) + (norm_bias ? 1 : 0); }
};

}  // namespace dsj::layout

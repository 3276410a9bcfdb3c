// A Hugging Face config.json as the engine and the memory model read it: a model's shape,
// torch-free. It refuses what the engine cannot run, with the field and the reason, and never
// guesses. Biases, norms, windows and rope are data; only `block` chooses code.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::layout {

/// The two shapes of a decoder layer.
enum class Block {
  Llama,  ///< RMSNorm, rotary positions, gated SiLU: llama, mistral, qwen2, qwen3
  Gpt2,   ///< LayerNorm, learned positions, gelu_new, weights stored [in, out]
};

/// Rotary positions, as in transformers' modeling_rope_utils.
struct RopeConfig {
  enum class Scaling { Default, Linear, Dynamic, Llama3 };
  Scaling scaling = Scaling::Default;
  double theta = 10000.0;
  double factor = 1;                                 ///< Linear, Dynamic, Llama3
  double low_freq_factor = 1, high_freq_factor = 4;  ///< Llama3
  int64_t original_max = 0;  ///< tokens: Llama3's pretraining length, Dynamic's unscaled length
};

/// Probabilities, in training only.
struct DropoutConfig {
  double embedding = 0, attention = 0, residual = 0;
};

struct ModelConfig {
  std::string model_type;  ///< "qwen2" ...
  Block block = Block::Llama;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;     ///< query heads
  int64_t num_kv_heads = 0;  ///< key and value heads; divides num_heads
  int64_t head_dim = 0;      ///< elements, even; num_heads * head_dim may differ from hidden_size
  int64_t max_position = 0;  ///< tokens
  double norm_eps = 1e-6;
  RopeConfig rope;    ///< Block::Llama
  bool tied = false;  ///< lm_head is the embedding
  bool qkv_bias = true;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  ///< RMSNorm over each query and key head
  /// [layer]: how many tokens a token sees, itself included; 0: all before it. Empty: all 0.
  std::vector<int64_t> windows;
  bool scale_attention = true;  ///< scores / sqrt(head_dim)
  bool scale_by_layer = false;  ///< also / (layer + 1)
  DropoutConfig dropout;

  int64_t query_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  int64_t window(int64_t layer) const { return windows.empty() ? 0 : windows[layer]; }
  /// The factor on the scores.
  double attention_scale(int64_t layer) const;
  /// Tokens of the longest sequence that it was made for: max_position, unless rope scaling grows
  /// with the sequence.
  int64_t longest_sequence() const;
  /// Whether positions are parameters: there are none behind the last. Rope goes on.
  bool learned_positions() const { return block == Block::Gpt2; }
};

/// `where` names the file in messages. BadInput: an unknown model_type (lists the known ones), or a
/// setting that would change the result and is not built: other rope scalings, partial rotary,
/// another activation, tensor-parallel pretraining. Also a size beyond all counting: field and range.
Result<ModelConfig> model_config_from_json(const nlohmann::json& config, const std::string& where);

/// Reads DIRECTORY/config.json. Errors as above.
Result<ModelConfig> read_model_config(const std::string& directory);

}  // namespace dsj::layout

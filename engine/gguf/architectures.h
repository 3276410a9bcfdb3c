// The model types that have an architecture in llama.cpp, and the architecture's properties: one
// row each. Facts of llama.cpp's src/models/*.cpp and of its llama_model_rope_type.
// Tested by: tests/engine/gguf/export_test.cc
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/result.h"
#include "job/layout/shape/model_shape.h"

namespace dsj::gguf {

/// Features of an architecture beyond a plain layer. A model that needs more is refused.
enum Feature : uint32_t {
  kHeadDim = 1 << 0,     ///< num_heads * head_dim may differ from hidden_size
  kOutputBias = 1 << 1,  ///< on attention's output
  kMlpBias = 1 << 2,
  kHeadBias = 1 << 3,
  kPartialRope = 1 << 4,
  kWindows = 1 << 5,      ///< layers with a sliding window, set by keys
  kScales = 1 << 6,       ///< Granite's multipliers
  kLogitScale = 1 << 7,   ///< Cohere's
  kCaps = 1 << 8,         ///< on scores and logits
  kRopeFactors = 1 << 9,  ///< a divisor per frequency: Llama 3's scaling
  kLongRope = 1 << 10,    ///< two lists of divisors: longrope
  kExperts = 1 << 11,
  kNormalizedExperts = 1 << 12,  ///< the weights of a token's experts sum to 1
  kSharedExpert = 1 << 13,
  kExpertLength = 1 << 14,  ///< an expert's inner size has its own key
  kParallelKey = 1 << 15,   ///< a key says whether attention and MLP are parallel
  kGemmaScales = 1 << 16,   ///< scaled embedding, own rule for scaling scores
  kNeedsBiases = 1 << 17,   ///< requires biases of attention and MLP
  kPostNormName = 1 << 18,  ///< the norm before the MLP is named post_attention_norm
  kAllKeyHeads = 1 << 19,   ///< as many key heads as query heads
};

/// Whether the file has a separate output layer.
enum class Tie : uint8_t {
  Optional,  ///< may have one
  Separate,  ///< must have one; for tied models a copy of the embedding
  Always,    ///< must not have one
};

struct Architecture {
  const char* model_type;
  const char* name;  ///< general.architecture
  /// Whether elements 2i and 2i+1 of a head are rotated together; else i and i + half, as usual.
  bool pairs = false;
  layout::Activation activation = layout::Activation::Silu;
  uint32_t features = 0;
  Tie tie = Tie::Optional;

  bool has(Feature feature) const { return (features & feature) != 0; }
};

std::span<const Architecture> architectures();

/// The row of a model. BadInput: it has none (lists the supported ones), or the model needs what
/// llama.cpp's architecture does not compute. `where`: its config.json.
Result<const Architecture*> architecture_of(const layout::ModelConfig& config,
                                            const std::string& where);

}  // namespace dsj::gguf

// Which model types have an architecture in llama.cpp, and what that architecture computes: one row
// each. Facts of llama.cpp's src/models/*.cpp and of its llama_model_rope_type.
// Tested by: tests/engine/gguf/export_test.cc
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/result.h"
#include "job/layout/model_shape.h"

namespace dsj::gguf {

/// What an architecture can do beyond its plain layer. A model that needs more is refused.
enum Feature : uint32_t {
  kHeadDim = 1 << 0,     ///< num_heads * head_dim may differ from hidden_size
  kOutputBias = 1 << 1,  ///< of attention's output
  kMlpBias = 1 << 2,
  kHeadBias = 1 << 3,
  kPartialRope = 1 << 4,
  kWindows = 1 << 5,      ///< layers with a sliding window, as its keys say
  kScales = 1 << 6,       ///< Granite's multipliers
  kLogitScale = 1 << 7,   ///< Cohere's
  kCaps = 1 << 8,         ///< on scores and logits
  kRopeFactors = 1 << 9,  ///< a divisor of each frequency: Llama 3's scaling
  kLongRope = 1 << 10,    ///< two lists of them: longrope
  kExperts = 1 << 11,
  kNormalizedExperts = 1 << 12,  ///< the weights of a token's experts add up to 1
  kSharedExpert = 1 << 13,
  kExpertLength = 1 << 14,  ///< an expert's inner size has a key of its own
  kParallelKey = 1 << 15,   ///< a key says whether attention and MLP are parallel
  kGemmaScales = 1 << 16,   ///< the embedding is scaled, and scores by a rule of its own
  kNeedsBiases = 1 << 17,   ///< of attention and MLP: it does not load a file without them
  kPostNormName = 1 << 18,  ///< the norm before the MLP is called post_attention_norm
  kAllKeyHeads = 1 << 19,   ///< as many key heads as query heads
};

/// What no feature describes.
enum class Tie : uint8_t {
  Optional,  ///< the file need not have an output layer
  Separate,  ///< it must have one: of a tied model the embedding once more
  Always,    ///< it must not have one
};

struct Architecture {
  const char* model_type;
  const char* name;  ///< general.architecture
  /// Elements 2i and 2i+1 of a head turn together; else i and i + half, as in most checkpoints.
  bool pairs = false;
  layout::Activation activation = layout::Activation::Silu;
  uint32_t features = 0;
  Tie tie = Tie::Optional;

  bool has(Feature feature) const { return (features & feature) != 0; }
};

std::span<const Architecture> architectures();

/// The row of a model. BadInput: it has none (lists those that have), or the model needs what
/// llama.cpp's architecture does not compute; says what. `where`: its config.json.
Result<const Architecture*> architecture_of(const layout::ModelConfig& config,
                                            const std::string& where);

}  // namespace dsj::gguf

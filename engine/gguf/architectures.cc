#include "engine/gguf/architectures.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

namespace dsj::gguf {
namespace {

using layout::Activation;
using layout::ModelConfig;
using layout::RopeConfig;

constexpr uint32_t kLlama =
    kHeadDim | kOutputBias | kMlpBias | kRopeFactors | kExperts | kNormalizedExperts;
constexpr uint32_t kBiases = kOutputBias | kMlpBias;
constexpr uint32_t kAllBiases = kBiases | kNeedsBiases;

constexpr Architecture kArchitectures[] = {
    {"llama", "llama", true, Activation::Silu, kLlama},
    {"mistral", "llama", true, Activation::Silu, kLlama},
    {"ministral", "llama", true, Activation::Silu, kLlama},
    {"internlm3", "llama", true, Activation::Silu, kLlama},
    {"mixtral", "llama", true, Activation::Silu, kLlama},
    {"qwen2", "qwen2", false, Activation::Silu, kOutputBias},
    {"qwen3", "qwen3", false, Activation::Silu, kHeadDim | kOutputBias},
    {"qwen2_moe", "qwen2moe", false, Activation::Silu,
     kOutputBias | kExperts | kSharedExpert | kExpertLength, Tie::Separate},
    {"qwen3_moe", "qwen3moe", false, Activation::Silu,
     kHeadDim | kOutputBias | kExperts | kNormalizedExperts | kExpertLength},
    {"gemma", "gemma", false, Activation::GeluTanh, kHeadDim | kGemmaScales, Tie::Always},
    {"gemma2", "gemma2", false, Activation::GeluTanh, kHeadDim | kGemmaScales | kWindows | kCaps,
     Tie::Always},
    {"gemma3_text", "gemma3", false, Activation::GeluTanh, kHeadDim | kGemmaScales | kWindows},
    {"gemma3", "gemma3", false, Activation::GeluTanh, kHeadDim | kGemmaScales | kWindows},
    {"phi3", "phi3", false, Activation::Silu, kPartialRope | kLongRope},
    {"phi", "phi2", false, Activation::GeluTanh, kAllBiases | kHeadBias | kPartialRope,
     Tie::Separate},
    {"smollm3", "smollm3", true, Activation::Silu, kHeadDim | kBiases},
    {"granite", "granite", true, Activation::Silu, kHeadDim | kBiases | kRopeFactors | kScales},
    {"granitemoe", "granitemoe", true, Activation::Silu,
     kHeadDim | kOutputBias | kRopeFactors | kScales | kExperts | kNormalizedExperts},
    {"olmo", "olmo", true, Activation::Silu, 0},
    {"olmo2", "olmo2", false, Activation::Silu, kWindows, Tie::Separate},
    {"olmo3", "olmo2", false, Activation::Silu, kWindows, Tie::Separate},
    {"olmoe", "olmoe", false, Activation::Silu, kExperts | kAllKeyHeads, Tie::Separate},
    {"seed_oss", "seed_oss", false, Activation::Silu, kHeadDim | kOutputBias | kPostNormName},
    {"ernie4_5", "ernie4_5", true, Activation::Silu, kHeadDim | kOutputBias},
    {"arcee", "arcee", true, Activation::Relu2, kHeadDim | kOutputBias | kRopeFactors},
    {"nemotron", "nemotron", false, Activation::Relu2, kBiases | kPartialRope, Tie::Separate},
    {"starcoder2", "starcoder2", false, Activation::GeluTanh, kAllBiases},
    {"stablelm", "stablelm", false, Activation::Silu, kPartialRope, Tie::Separate},
    {"jais2", "jais2", false, Activation::Relu2, kHeadDim | kBiases},
    {"cohere", "command-r", true, Activation::Silu, kLogitScale, Tie::Always},
    {"cohere2", "cohere2", true, Activation::Silu, kLogitScale | kWindows, Tie::Always},
    {"gpt_neox", "gptneox", false, Activation::GeluTanh, kAllBiases | kPartialRope | kParallelKey,
     Tie::Separate},
    {"glm4", "glm4", true, Activation::Silu, kHeadDim | kPartialRope},
    {"hunyuan_v1_dense", "hunyuan-dense", false, Activation::Silu, kHeadDim},
    {"gpt2", "gpt2", false, Activation::GeluTanh, kBiases},
    {"gpt_bigcode", "starcoder", false, Activation::GeluTanh, kAllBiases},
};

/// Whether the model's layers without positions are those of the architecture.
bool no_rope_fits(const ModelConfig& c, const std::string& name) {
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    const bool turns = name == "smollm3"   ? (layer + 1) % 4 != 0
                       : name == "cohere2" ? c.window(layer) > 0
                                           : true;
    if (!c.learned_positions && c.rotates(layer) != turns) return false;
  }
  return true;
}

bool near(double a, double b) {
  return std::fabs(a - b) <= 1e-6 * std::max(std::fabs(a), std::fabs(b));
}

/// The factor on the scores of an architecture that has no key for it.
double attention_scale(const ModelConfig& c, const Architecture& of) {
  const std::string name = of.name;
  const bool by_hidden = (name == "gemma2" && c.num_layers == 46) ||
                         (name == "gemma3" && c.num_layers == 62);  // the two 27B models
  return 1 / std::sqrt(static_cast<double>(by_hidden ? c.hidden_size / c.num_heads : c.head_dim));
}

/// What the architecture cannot represent; nullopt if it can represent the model.
std::optional<std::string> missing_shape(const ModelConfig& c, const Architecture& of) {
  const auto lacks = [&](bool needs, Feature feature) { return needs && !of.has(feature); };
  if (lacks(c.query_size() != c.hidden_size, kHeadDim))
    return "heads whose elements do not add up to hidden_size";
  if (lacks(c.o_bias, kOutputBias)) return "a bias of attention's output";
  if (lacks(c.mlp_bias, kMlpBias)) return "biases of the MLP";
  if (of.has(kNeedsBiases) && !(c.qkv_bias && c.o_bias && c.mlp_bias))
    return "layers without biases";
  if (of.has(kAllKeyHeads) && c.num_kv_heads != c.num_heads) return "key heads for several queries";
  if (lacks(c.head_bias, kHeadBias)) return "a bias of the output layer";
  if (lacks(!c.learned_positions && c.rotary_size() != c.head_dim, kPartialRope))
    return "heads that are rotated in part";
  if (c.activation != of.activation &&
      !(c.activation == Activation::Gelu && of.activation == Activation::GeluTanh))
    return "this activation";
  if (of.tie == Tie::Always && !c.tied) return "an output layer of its own";
  if (of.pairs && c.qk_norm && !c.rope_in_pairs) return "norms of queries and keys";
  if (!of.pairs && c.rope_in_pairs) return "rotation of neighbouring elements";
  if (!no_rope_fits(c, of.name)) return "positions in just these layers";
  if (!c.shapes.empty() || c.value_norm || c.layer_scale || c.sinks || c.latent.rank > 0 ||
      c.output_gate || c.has_states())
    return "this kind of attention";
  return std::nullopt;
}

std::optional<std::string> missing_experts(const ModelConfig& c, const Architecture& of) {
  const layout::ExpertsConfig& e = c.experts;
  if (e.count == 0) return std::nullopt;
  if (!of.has(kExperts) || e.alternates || e.router_bias || e.scale != 1)
    return "experts of this kind";
  if (std::ranges::find(e.dense, true) != e.dense.end()) return "layers without experts";
  // With one expert per token a normalized weight is 1.
  if (e.normalized != of.has(kNormalizedExperts))
    return std::string(e.normalized ? "" : "un") + "normalized weights of experts";
  if ((e.shared_inner > 0) != of.has(kSharedExpert)) return "a shared expert like this";
  return std::nullopt;
}

std::optional<std::string> missing_numbers(const ModelConfig& c, const Architecture& of) {
  const auto lacks = [&](bool needs, Feature feature) { return needs && !of.has(feature); };
  const double embedding = of.has(kGemmaScales) ? std::sqrt(static_cast<double>(c.hidden_size)) : 1;
  if (!of.has(kScales)) {
    if (!near(c.embedding_scale, embedding)) return "this scale of the embedding";
    if (c.residual_scale != 1) return "residual_multiplier";
    if (c.scale_by_layer || !near(c.attention_scale(0), attention_scale(c, of)))
      return "this scale of attention's scores (query_pre_attn_scalar, attention_multiplier)";
  }
  if (lacks(c.logits_scale != 1 && !of.has(kScales), kLogitScale)) return "scaled logits";
  if (lacks(c.scores_cap > 0, kCaps)) return "attn_logit_softcapping";
  if (lacks(c.logits_cap > 0 && std::string(of.name) != "gemma3", kCaps))
    return "final_logit_softcapping";
  if (c.local_rope && c.local_rope->scaling != RopeConfig::Scaling::Default)
    return "scaled rope in layers with a window";
  return std::nullopt;
}

std::optional<std::string> missing_rope(const ModelConfig& c, const Architecture& of) {
  using enum RopeConfig::Scaling;
  const RopeConfig& rope = c.rope;
  switch (rope.scaling) {
    case Default:
    case Linear:
    case Dynamic:  // the same up to original_max; a note says so
      return std::nullopt;
    case Llama3:
      if (!of.has(kRopeFactors)) return "rope scaling llama3";
      return std::nullopt;
    case Proportional:
      return "rope scaling proportional";
    case LongRope:
      if (!of.has(kLongRope)) return "rope scaling longrope";
      return std::nullopt;
    case Yarn:
      if (!rope.truncate || rope.beta_fast != 32 || rope.beta_slow != 1)
        return "yarn with another ramp than beta_fast 32, beta_slow 1, truncated";
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::span<const Architecture> architectures() {
  return kArchitectures;
}

Result<const Architecture*> architecture_of(const ModelConfig& config, const std::string& where) {
  const auto* found = std::ranges::find_if(
      kArchitectures, [&](const Architecture& one) { return config.model_type == one.model_type; });
  if (found == std::end(kArchitectures)) {
    std::string known;
    for (const Architecture& one : kArchitectures)
      known += (known.empty() ? "" : ", ") + std::string(one.model_type);
    return bad_input("model_type \"" + config.model_type + "\" cannot be exported to GGUF", where,
                     "supported: " + known);
  }
  for (const auto& missing : {missing_shape, missing_experts, missing_numbers, missing_rope}) {
    if (const auto what = missing(config, *found))
      return bad_input("llama.cpp's architecture \"" + std::string(found->name) +
                           "\" does not support: " + *what,
                       where, "it would generate other tokens than this model");
  }
  return found;
}

}  // namespace dsj::gguf

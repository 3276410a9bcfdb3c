#include "engine/gguf/model_keys.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <numbers>

#include "job/layout/units.h"

namespace dsj::gguf {
namespace {

using layout::ModelConfig;
using layout::RopeConfig;

/// Llama 3's rule (transformers' _compute_llama3_parameters) as a divisor of each frequency: 1 for
/// short waves, the factor for long ones, and the inverse of the interpolated value between.
std::vector<float> llama3_divisors(const ModelConfig& c) {
  const RopeConfig& rope = c.rope;
  const auto dim = static_cast<double>(c.rotary_size());
  const auto original = static_cast<float>(rope.original_max);
  const float low = original / static_cast<float>(rope.low_freq_factor);
  const float high = original / static_cast<float>(rope.high_freq_factor);
  std::vector<float> divisors;
  for (int64_t i = 0; i < c.rotary_size(); i += 2) {
    const float frequency =
        1.0f / static_cast<float>(std::pow(rope.theta, static_cast<double>(i) / dim));
    const float wave = static_cast<float>(2 * std::numbers::pi) / frequency;
    if (wave < high) {
      divisors.push_back(1);
    } else if (wave > low) {
      divisors.push_back(static_cast<float>(rope.factor));
    } else {
      const auto smooth = static_cast<float>((original / wave - rope.low_freq_factor) /
                                             (rope.high_freq_factor - rope.low_freq_factor));
      divisors.push_back(1 / ((1 - smooth) / static_cast<float>(rope.factor) + smooth));
    }
  }
  return divisors;
}

/// Sets keys of one architecture.
class ModelKeys {
 public:
  ModelKeys(const ModelConfig& config, const Architecture& of, Keys& keys,
            std::vector<std::string>& notes)
      : c_(config), of_(of), keys_(keys), notes_(notes) {}

  void set_all() {
    whole("vocab_size", c_.vocab_size);
    whole("context_length", c_.max_position);
    whole("embedding_length", c_.hidden_size);
    whole("block_count", c_.num_layers);
    const bool of_expert = c_.experts.count > 0 && !of_.has(kExpertLength);
    whole("feed_forward_length", of_expert ? c_.experts.inner : c_.intermediate_size);
    attention();
    if (!c_.learned_positions && c_.block != layout::Block::Gpt2) rope();
    if (c_.experts.count > 0) experts();
    if (of_.has(kScales)) {
      number("embedding_scale", c_.embedding_scale);
      number("residual_scale", c_.residual_scale);
      number("logit_scale", 1 / c_.logits_scale);
    }
    if (of_.has(kLogitScale)) number("logit_scale", c_.logits_scale);
    if (c_.scores_cap > 0) number("attn_logit_softcapping", c_.scores_cap);
    if (c_.logits_cap > 0) number("final_logit_softcapping", c_.logits_cap);
    if (of_.has(kParallelKey)) set("use_parallel_residual", c_.parallel);
  }

 private:
  void set(const char* name, Value value) {
    keys_.set(std::string(of_.name) + "." + name, std::move(value));
  }
  void whole(const char* name, int64_t value) { set(name, static_cast<uint32_t>(value)); }
  void number(const char* name, double value) { set(name, static_cast<float>(value)); }

  void attention() {
    whole("attention.head_count", c_.num_heads);
    whole("attention.head_count_kv", c_.num_kv_heads);
    whole("attention.key_length", c_.head_dim);
    whole("attention.value_length", c_.head_dim);
    number(c_.rms() ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
           c_.norm_eps);
    if (of_.has(kScales)) number("attention.scale", c_.attention_scale(0));
    windows();
  }

  void windows() {
    int64_t window = 0;
    std::vector<bool> slides;
    for (int64_t layer = 0; layer < c_.num_layers; ++layer) {
      slides.push_back(c_.window(layer) > 0);
      window = std::max(window, c_.window(layer));
    }
    // With the key set to 0, llama.cpp distinguishes Phi-4 from earlier models.
    if (window == 0 && std::string(of_.name) != "phi3") return;
    if (of_.has(kWindows)) {
      whole("attention.sliding_window", window);
      set("attention.sliding_window_pattern", slides);
      return;
    }
    if (std::string(of_.name) == "phi3") whole("attention.sliding_window", window);
    if (window > 0 && window < c_.max_position)
      notes_.push_back("llama.cpp's " + std::string(of_.name) + " has no sliding window: after " +
                       std::to_string(window) + " tokens it differs from this model");
  }

  void rope() {
    whole("rope.dimension_count", c_.rotary_size());
    number("rope.freq_base", c_.rope.theta);
    if (c_.local_rope) number("rope.freq_base_swa", c_.local_rope->theta);
    const RopeConfig& rope = c_.rope;
    switch (rope.scaling) {
      case RopeConfig::Scaling::Default:
      case RopeConfig::Scaling::Llama3:        // rope_tensors()
      case RopeConfig::Scaling::Proportional:  // no architecture has it
        break;
      case RopeConfig::Scaling::Linear:
        set("rope.scaling.type", std::string("linear"));
        number("rope.scaling.factor", rope.factor);
        break;
      case RopeConfig::Scaling::Dynamic:
        notes_.push_back("GGUF has no dynamic rope scaling: after " +
                         std::to_string(rope.original_max) +
                         " tokens llama.cpp differs from this model");
        break;
      case RopeConfig::Scaling::Yarn: {
        set("rope.scaling.type", std::string("yarn"));
        number("rope.scaling.factor", rope.factor);
        whole("rope.scaling.original_context_length", rope.original_max);
        // llama.cpp multiplies yarn's own factor by this one.
        const double own = 1 + 0.1 * std::log(rope.factor);
        if (std::fabs(rope.attention_factor - own) > 1e-6)
          number("rope.scaling.attn_factor", rope.attention_factor / own);
        break;
      }
      case RopeConfig::Scaling::LongRope:
        set("rope.scaling.type", std::string("longrope"));
        whole("rope.scaling.original_context_length", rope.original_max);
        number("rope.scaling.attn_factor", rope.attention_factor);
        break;
    }
    if (std::string(of_.name) == "phi3" && rope.scaling == RopeConfig::Scaling::Default)
      whole("rope.scaling.original_context_length",
            rope.original_max > 0 ? rope.original_max : c_.max_position);
  }

  void experts() {
    whole("expert_count", c_.experts.count);
    whole("expert_used_count", c_.experts.per_token);
    if (of_.has(kExpertLength)) whole("expert_feed_forward_length", c_.experts.inner);
    if (c_.experts.shared_inner > 0)
      whole("expert_shared_feed_forward_length", c_.experts.shared_inner);
  }

  const ModelConfig& c_;
  const Architecture& of_;
  Keys& keys_;
  std::vector<std::string>& notes_;
};

std::string rounded(double parameters) {
  static constexpr std::array<std::pair<double, const char*>, 4> kUnits = {
      {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {0, "K"}}};
  for (const auto& [above, suffix] : kUnits) {
    if (parameters <= above && above > 0) continue;
    const double scaled = parameters / (above > 0 ? above : 1e3);
    const double whole = std::nearbyint(scaled);
    const int digits = whole >= 10 ? 0 : whole >= 1 ? 1 : 2;  // two significant digits
    char text[32];
    std::snprintf(text, sizeof(text), "%.*f%s", digits, scaled, suffix);
    return text;
  }
  return {};
}

}  // namespace

void set_model_keys(const ModelConfig& config, const Architecture& of, Keys& keys,
                    std::vector<std::string>& notes) {
  ModelKeys(config, of, keys, notes).set_all();
}

std::vector<RopeTensor> rope_tensors(const ModelConfig& c) {
  const auto floats = [](const std::vector<double>& values) {
    return std::vector<float>(values.begin(), values.end());
  };
  if (c.rope.scaling == RopeConfig::Scaling::Llama3)
    return {{"rope_freqs.weight", llama3_divisors(c)}};
  if (c.rope.scaling == RopeConfig::Scaling::LongRope)
    return {{"rope_factors_long.weight", floats(c.rope.long_factor)},
            {"rope_factors_short.weight", floats(c.rope.short_factor)}};
  return {};
}

std::string size_label(const ModelConfig& config) {
  const auto units = layout::units_of(config);
  int64_t routed = 0;
  for (const auto& unit : units)
    for (const auto& parameter : unit.parameters)
      routed += parameter.routed ? parameter.numel() : 0;
  const int64_t total = layout::total_numel(units);
  if (routed == 0) return rounded(static_cast<double>(total));
  const int64_t shared = total - routed, expert = routed / config.experts.count;
  return std::to_string(config.experts.count) + "x" + rounded(static_cast<double>(shared + expert));
}

}  // namespace dsj::gguf

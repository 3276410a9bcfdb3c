// Qwen2 as plain libtorch writes it: autograd, whole parameters, one process. What the engine's
// numbers are compared with; bench/train_loop.cc has the loop its speed is compared with.
// Deliberately short.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "job/layout/units.h"

namespace dsj::testing_support {

class PlainQwen2 {
 public:
  /// `values`: parameter name → tensor (copied).
  PlainQwen2(const layout::ModelConfig& config, const std::map<std::string, at::Tensor>& values)
      : c_(config) {
    c10::AutoGradMode enabled(true);
    for (const auto& [name, value] : values) {
      weights_[name] = value.detach().clone().set_requires_grad(true);
      first_[name] = at::zeros_like(value);
      second_[name] = at::zeros_like(value);
    }
  }

  /// Of layer i the tokens [B, k] int64 that it sees; undefined: all. The others pass around it.
  using Kept = std::function<at::Tensor(int64_t layer)>;
  void keep(Kept kept) { kept_ = std::move(kept); }

  /// ids, labels [B, T] → mean cross-entropy over valid targets.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& labels) {
    at::Tensor x = at::embedding(w("model.embed_tokens.weight"), ids);
    const int64_t seq = ids.size(1);
    const at::Tensor exponent =
        at::arange(0, c_.head_dim, 2).to(at::kFloat) / static_cast<double>(c_.head_dim);
    const at::Tensor angles =
        at::arange(seq).to(at::kFloat).unsqueeze(1) / at::pow(c_.rope.theta, exponent).unsqueeze(0);
    const at::Tensor both = at::cat({angles, angles}, -1);
    for (int64_t i = 0; i < c_.num_layers; ++i) {
      const std::string name = "model.layers." + std::to_string(i) + ".";
      const at::Tensor kept = kept_ ? kept_(i) : at::Tensor();
      x = kept.defined() ? around(x, kept, name, both) : layer(x, name, both.cos(), both.sin());
    }
    x = norm(x, "model.norm.weight");
    const at::Tensor logits =
        at::linear(x, w(c_.tied ? "model.embed_tokens.weight" : "lm_head.weight"));
    return at::cross_entropy_loss(logits.slice(1, 0, seq - 1).flatten(0, 1),
                                  labels.slice(1, 1).flatten());
  }

  /// Clips to `max_norm` (0: off), applies AdamW, clears gradients. `decays_all`: norms and biases have
  /// weight decay, too. Returns the norm before clipping.
  double step(double lr, double beta1, double beta2, double eps, double weight_decay,
              double max_norm, bool decays_all = true) {
    c10::AutoGradMode disabled(false);
    double squares = 0;
    for (auto& [name, value] : weights_)
      squares += value.grad().square().sum(at::kDouble).item<double>();
    const double norm = std::sqrt(squares);
    const double scale = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
    ++steps_;
    for (auto& [name, value] : weights_) {
      const at::Tensor grad = value.grad().mul_(scale);
      const bool is_matrix = value.dim() > 1;  // of these models: neither norm nor bias
      if (is_matrix || decays_all) value.mul_(1 - lr * weight_decay);
      first_[name].lerp_(grad, 1 - beta1);
      second_[name].mul_(beta2).addcmul_(grad, grad, 1 - beta2);
      const double c1 = 1 - std::pow(beta1, steps_), c2 = 1 - std::pow(beta2, steps_);
      value.addcdiv_(first_[name], (second_[name].sqrt() / std::sqrt(c2)).add_(eps), -lr / c1);
      value.mutable_grad().reset();
    }
    return norm;
  }

  const std::map<std::string, at::Tensor>& weights() const { return weights_; }

 private:
  const at::Tensor& w(const std::string& name) { return weights_.at(name); }
  at::Tensor norm(const at::Tensor& x, const std::string& name) {
    return x * at::rsqrt(x.square().mean(-1, true) + c_.norm_eps) * w(name);
  }
  static at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
    const auto halves = x.chunk(2, -1);
    return x * cos + at::cat({-halves[1], halves[0]}, -1) * sin;
  }
  /// The layer on its tokens alone, each at its own position; x [B, T, H] elsewhere.
  at::Tensor around(const at::Tensor& x, const at::Tensor& kept, const std::string& name,
                    const at::Tensor& angles) {
    const at::Tensor at_all = kept.unsqueeze(2).expand({-1, -1, x.size(2)});
    const at::Tensor own = angles.index_select(0, kept.flatten())
                               .view({kept.size(0), 1, kept.size(1), angles.size(1)});
    return x.scatter(1, at_all, layer(x.gather(1, at_all), name, own.cos(), own.sin()));
  }
  at::Tensor layer(const at::Tensor& x, const std::string& p, const at::Tensor& cos,
                   const at::Tensor& sin) {
    const at::Tensor h = norm(x, p + "input_layernorm.weight");
    auto project = [&](const char* name, int64_t heads) {
      const std::string key = p + "self_attn." + name;
      return at::linear(h, w(key + ".weight"), w(key + ".bias"))
          .view({h.size(0), h.size(1), heads, c_.head_dim})
          .transpose(1, 2);
    };
    const at::Tensor q = rotate(project("q_proj", c_.num_heads), cos, sin);
    const at::Tensor k = rotate(project("k_proj", c_.num_kv_heads), cos, sin);
    const at::Tensor v = project("v_proj", c_.num_kv_heads);
    const at::Tensor attended =
        at::scaled_dot_product_attention(q, k, v, {}, 0.0, true, std::nullopt, true);
    const at::Tensor x2 =
        x + at::linear(attended.transpose(1, 2).flatten(2), w(p + "self_attn.o_proj.weight"));
    const at::Tensor h2 = norm(x2, p + "post_attention_layernorm.weight");
    const at::Tensor gated = at::silu(at::linear(h2, w(p + "mlp.gate_proj.weight"))) *
                             at::linear(h2, w(p + "mlp.up_proj.weight"));
    return x2 + at::linear(gated, w(p + "mlp.down_proj.weight"));
  }

  layout::ModelConfig c_;
  std::map<std::string, at::Tensor> weights_, first_, second_;
  int64_t steps_ = 0;
  Kept kept_;
};

}  // namespace dsj::testing_support

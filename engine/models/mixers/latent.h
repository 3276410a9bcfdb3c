// The projections of multi-head latent attention (layout::LatentConfig; DeepSeek-AI 2024, section
// 2.1): from the hidden state to queries, keys and values of all heads, as attention takes them,
// and back. A head has rotated + plain elements, the rotated ones first. This permutes queries and
// keys alike, so scores do not change. A value head is padded with zeros.
// Tested by: tests/engine/train/model_oracle_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/models/unit/projection.h"
#include "engine/models/unit/unit.h"
#include "job/layout/units.h"

namespace dsj::models {

class LatentQkv {
 public:
  explicit LatentQkv(const layout::ModelConfig& config);
  /// h [N, H], normed → [N, 3 heads D], not yet rotated.
  at::Tensor forward(const zero::UnitParameters& p, const at::Tensor& h, DropoutKey key,
                     LayerSaved::Latents* saved) const;
  /// dqkv: gradient of forward's result. Writes the parameters' gradients; returns that of h.
  at::Tensor backward(const zero::UnitParameters& p, const at::Tensor& dqkv, const at::Tensor& h,
                      const LayerSaved::Latents& saved, DropoutKey key) const;

 private:
  ops::Normed norm(const zero::UnitParameters& p, int weight, const at::Tensor& x) const;
  /// Writes the norm's gradient; returns that of x.
  at::Tensor norm_backward(const zero::UnitParameters& p, int weight, const at::Tensor& dy,
                           const at::Tensor& x, const ops::Normed& normed) const;

  const layout::LatentConfig config_;
  const int64_t heads_, dim_;
  int query_norm_ = -1, norm_ = -1;
  Projection query_down_, query_, down_, up_;
};

}  // namespace dsj::models

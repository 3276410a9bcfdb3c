// The norms of layers and of the head, of the model's kind (layout::NormKind). Kinds that round
// once compute 16-bit x in fp32, with a temporary copy of x.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/models/ops/ops.h"
#include "engine/zero/model_state.h"
#include "job/layout/model_config.h"

namespace dsj::models {

/// The indices of a norm's parameters in its unit; -1 if it has none.
struct NormAt {
  int weight = 0, bias = -1;
  double factor = 1;  ///< on the weight; RMS norms only
};

/// x [N, H] in the stream's type → y in the same type.
ops::Normed norm(const zero::UnitParameters& p, const layout::ModelConfig& config, const NormAt& at,
                 const at::Tensor& x);
/// dy: gradient of the output, in any type. dx [N, H] += gradient of x. Writes parameter gradients.
void norm_backward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                   const NormAt& at, const at::Tensor& dy, const at::Tensor& x,
                   const ops::Normed& normed, at::Tensor dx);

/// The weight of a head norm as its kernel takes it, in x's type.
at::Tensor head_norm_weight(const layout::ModelConfig& config, const at::Tensor& weight,
                            const at::Tensor& x);
/// Whether norms of 16-bit tensors are computed in fp32.
inline bool rounds_once(const layout::ModelConfig& config) {
  return config.norm == layout::NormKind::RmsOnce || config.norm == layout::NormKind::RmsPlusOne;
}

}  // namespace dsj::models

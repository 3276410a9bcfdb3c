// LoRA in a projection: y += s (dropout(x) A^T) B^T, forward and hand-written backward (Hu et al.
// 2021, in PEFT's order of operations). Each product rounds as in gemm.h. Backward recomputes the
// low-rank activations, which is cheaper than keeping them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/models/ops/dora.h"
#include "engine/models/ops/projection_shape.h"
#include "engine/zero/model_state.h"

namespace dsj::models {

/// Whether one of the projection's weights has an adapter.
bool has_adapters(const zero::UnitParameters& p, const Projection& projection);

/// Adds the adapters' output for x [N, in] to out [N, width]. `dropout_key`: as in LayerCall;
/// nullopt means no dropout.
void adapters_forward(const zero::UnitParameters& p, const Projection& projection,
                      const at::Tensor& x, std::optional<uint64_t> dropout_key, at::Tensor out);

/// The gradient that the base's product has: dy [N, width] itself, or with DoRA a copy with scaled
/// columns. `lengths`, empty before: of every adapter with a magnitude, for adapters_backward().
at::Tensor base_gradient(const zero::UnitParameters& p, const Projection& projection,
                         const at::Tensor& dy, std::optional<uint64_t> dropout_key,
                         std::vector<dora::Lengths>& lengths);
/// Writes the gradients of every A, B and magnitude. Adds the adapters' part to dx [N, in].
void adapters_backward(const zero::UnitParameters& p, const Projection& projection,
                       const at::Tensor& dy, const at::Tensor& x,
                       std::optional<uint64_t> dropout_key,
                       const std::vector<dora::Lengths>& lengths, at::Tensor dx);

}  // namespace dsj::models

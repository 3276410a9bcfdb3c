// LoRA in a projection: y += s (dropout(x) A^T) B^T, forward and hand-written backward (Hu et al.
// 2021, in PEFT's order of operations). Each product rounds as in gemm.h. Backward recomputes the
// low-rank activations, which is cheaper than keeping them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "engine/models/projection_shape.h"
#include "engine/zero/model_state.h"

namespace dsj::models {

/// Whether one of the projection's weights has an adapter.
bool has_adapters(const zero::UnitParameters& p, const Projection& projection);

/// Adds the adapters' output for x [N, in] to out [N, width]. `dropout_key`: as in LayerCall;
/// nullopt means no dropout.
void adapters_forward(const zero::UnitParameters& p, const Projection& projection,
                      const at::Tensor& x, std::optional<uint64_t> dropout_key, at::Tensor out);

/// Writes the gradients of every A and B. Adds the adapters' part to dx [N, in].
void adapters_backward(const zero::UnitParameters& p, const Projection& projection,
                       const at::Tensor& dy, const at::Tensor& x,
                       std::optional<uint64_t> dropout_key, at::Tensor dx);

}  // namespace dsj::models

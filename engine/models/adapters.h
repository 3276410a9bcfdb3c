// LoRA in a projection: y += s (dropout(x) A^T) B^T, by hand, forward and backward (Hu et al. 2021;
// the order of operations is PEFT's). Each product rounds as gemm's do. The low-rank activations
// are computed again in backward: r columns are cheaper than keeping them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "engine/models/projection.h"
#include "engine/zero/model_state.h"

namespace dsj::models {

/// Whether one of the projection's weights has an adapter.
bool has_adapters(const zero::UnitParameters& p, const Projection& projection);

/// Adds to out [N, width] what the adapters make of x [N, in]. `dropout_key` as in LayerCall;
/// nullopt: nothing is dropped.
void adapters_forward(const zero::UnitParameters& p, const Projection& projection,
                      const at::Tensor& x, std::optional<uint64_t> dropout_key, at::Tensor out);

/// Writes the gradients of every A and B, and adds to dx [N, in] the adapters' part.
void adapters_backward(const zero::UnitParameters& p, const Projection& projection,
                       const at::Tensor& dy, const at::Tensor& x,
                       std::optional<uint64_t> dropout_key, at::Tensor dx);

}  // namespace dsj::models

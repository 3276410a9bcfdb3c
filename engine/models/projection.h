// Linear projections of a unit. Neighbours that read the same input run as one matrix product where
// their parameters lie together in a flat, else one by one. Gradients go straight to the flat. A
// frozen weight has none, and its product is left out. Adapters (adapters.h) are added here.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/models/projection_shape.h"
#include "engine/zero/model_state.h"

namespace dsj::models {

/// x [N, in] → [N, width].
at::Tensor project(const zero::UnitParameters& p, const Projection& projection, const at::Tensor& x,
                   DropoutKey dropout_key);
/// residual [N, width] + project(x), rounded once more in 16-bit types.
at::Tensor project_add(const zero::UnitParameters& p, const Projection& projection,
                       const at::Tensor& x, const at::Tensor& residual, DropoutKey dropout_key);
/// Writes the gradients of weights, biases and adapters; returns that of x [N, in].
at::Tensor project_backward(const zero::UnitParameters& p, const Projection& projection,
                            const at::Tensor& dy, const at::Tensor& x, DropoutKey dropout_key);

}  // namespace dsj::models

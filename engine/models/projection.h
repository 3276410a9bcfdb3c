// Linear projections of a unit. Neighbours that read the same input run as one matrix product where
// their parameters lie together in a flat, else one by one. Gradients go straight to the flat. A
// frozen weight has none, and its product is left out. Adapters (adapters.h) are added here. A
// projection's input and result have the products' type (factors.h).
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/models/projection_shape.h"
#include "engine/zero/model_state.h"

namespace dsj::models {

/// x [N, in] → [N, width].
at::Tensor project(const zero::UnitParameters& p, const Projection& projection, const at::Tensor& x,
                   DropoutKey dropout_key);
/// residual [N, width] + project(x), in the residual's type.
at::Tensor project_add(const zero::UnitParameters& p, const Projection& projection,
                       const at::Tensor& x, const at::Tensor& residual, DropoutKey dropout_key);
/// Writes the gradients of weights, biases and adapters; returns that of x [N, in], in x's type. dy
/// may have another.
at::Tensor project_backward(const zero::UnitParameters& p, const Projection& projection,
                            const at::Tensor& dy, const at::Tensor& x, DropoutKey dropout_key);
/// In place of project_backward() for a projection that no token passed: gradients that nothing was
/// written to are 0. With slices: those of all slices; project_backward() then adds to its own.
void no_gradient(const zero::UnitParameters& p, const Projection& projection);

}  // namespace dsj::models

// Linear projections of a unit. Neighbours with the same input run as one matrix product if their
// parameters are adjacent in a flat, else one by one. Gradients are written directly to the flat. A
// frozen weight has no gradient, and its product is skipped. Adapters (adapters.h) are added here.
// A projection's input and result have the products' type (factors.h).
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/models/ops/projection_shape.h"
#include "engine/zero/model_state.h"

namespace dsj::models {

/// x [N, in] → [N, width].
at::Tensor project(const zero::UnitParameters& p, const Projection& projection, const at::Tensor& x,
                   DropoutKey dropout_key);
/// residual [N, width] + project(x), in the residual's type.
at::Tensor project_add(const zero::UnitParameters& p, const Projection& projection,
                       const at::Tensor& x, const at::Tensor& residual, DropoutKey dropout_key);
/// Writes the gradients of weights, biases and adapters; returns that of x [N, in], in x's type. dy
/// may have another type.
at::Tensor project_backward(const zero::UnitParameters& p, const Projection& projection,
                            const at::Tensor& dy, const at::Tensor& x, DropoutKey dropout_key);
/// Call it instead of project_backward() for a projection without tokens: zeroes gradients that
/// were not written; with slices, of all slices. project_backward() then adds to its own.
void no_gradient(const zero::UnitParameters& p, const Projection& projection);

}  // namespace dsj::models

// Linear projections of a unit. Neighbours that read the same input run as one matrix product where
// their parameters lie together in a flat, else one by one. Gradients go straight to the flat. A
// frozen weight has none, and its product is left out. Adapters (adapters.h) are added here.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/zero/model_state.h"

namespace dsj::models {

struct Projection {
  int weight = 0;              ///< first of sizes.size() weights, neighbours in the unit
  int bias = -1;               ///< first of as many biases, or -1
  std::vector<int64_t> sizes;  ///< output columns of each
  bool transposed = false;     ///< stored [in, out] (GPT-2's Conv1D); one weight only

  int64_t width() const;  ///< all output columns
};

/// Of the unit in this micro-step (LayerCall): what an adapter drops of its input.
using DropoutKey = std::optional<uint64_t>;

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

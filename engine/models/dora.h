// DoRA (Liu et al. 2024) in a projection: output o of W + s B A is scaled to a length that is trained,
// its magnitude m_o. As in PEFT the length before, n_o, is a constant to the backward pass. Each
// pass computes it anew, some rows of W at a time.
// Tested by: tests/engine/models/dora_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/zero/model_state.h"

namespace dsj::models::dora {

/// Of an adapter with a magnitude. Both [out], fp32.
struct Lengths {
  at::Tensor before;  ///< n: the lengths of the rows of W + s B A
  at::Tensor factor;  ///< m / n
};
Lengths lengths_of(const zero::UnitParameters& p, const layout::Adapter& adapter);

}  // namespace dsj::models::dora

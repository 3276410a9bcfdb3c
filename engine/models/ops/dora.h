// DoRA (Liu et al. 2024) in a projection: row o of W + s B A is scaled to a trained length, its
// magnitude m_o. The length before scaling, n_o, is a constant in the backward pass, as in PEFT.
// Each pass computes n again, in pieces of kDoraPiece elements.
// Tested by: tests/engine/models/dora_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/zero/model_state.h"

namespace dsj::models::dora {

/// Row lengths of an adapter with a magnitude. Both [out], fp32.
struct Lengths {
  at::Tensor before;  ///< n: the lengths of the rows of W + s B A
  at::Tensor factor;  ///< m / n
};
Lengths lengths_of(const zero::UnitParameters& p, const layout::Adapter& adapter);

}  // namespace dsj::models::dora

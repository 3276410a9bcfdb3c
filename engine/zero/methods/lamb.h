// LAMB over flats, in two passes: the first updates the moments and sums the squares of whole
// parameters and of their directions, the second moves each parameter by its coefficient (the
// rule's formula: optim/optimizer.h).
// Tested by: tests/engine/zero/flat/flat_test.cc, tests/engine/zero/model_state_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/zero/methods/update_method.h"

namespace dsj::zero {

/// Applies one LAMB update. Returns the coefficients [slots] double of each trained flat.
/// Collective: with a sharded update one all-reduce of two numbers per parameter; and the gathers.
std::vector<at::Tensor> lamb_step(const UpdateTarget& target, const optim::Update& update);

/// The first pass over the owned elements. Adds each parameter's sums to `sums` [slots, 2] double.
/// If possible it overwrites the gradient with the direction.
void lamb_moments(Flat& flat, const optim::Update& update, const at::Tensor& sums);
/// The second pass, with coefficients [slots] double. `directed`: lamb_moments() ran just before
/// and left the directions. Else they are computed from the current states.
void lamb_apply(Flat& flat, const optim::Update& update, const at::Tensor& coefficients,
                bool directed);

}  // namespace dsj::zero

// LAMB over flats, in two passes: the first updates the moments and sums the squares of whole
// parameters and of their directions, the second moves each parameter by its coefficient (the rule's
// formula: optim/optimizer.h).
// Tested by: tests/engine/zero/flat_test.cc, tests/engine/zero/model_state_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/zero/update_method.h"

namespace dsj::zero {

/// One update of LAMB's. Returns the coefficients [slots] double of each trained flat. Collective: with a
/// sharded update one all-reduce of two numbers per parameter, and the gathers.
std::vector<at::Tensor> lamb_step(const UpdateTarget& target, const optim::Update& update);

/// The first pass over the owned elements: adds each parameter's sums to `sums` [slots, 2] double. Where
/// it can, it leaves the direction in the gradient's place: the gradient is no more.
void lamb_moments(Flat& flat, const optim::Update& update, const at::Tensor& sums);
/// The second pass, by coefficients [slots] double. `directed`: the first came just before. Else the
/// directions are of the states as they are.
void lamb_apply(Flat& flat, const optim::Update& update, const at::Tensor& coefficients,
                bool directed);

}  // namespace dsj::zero

// Whole parameters, flat by flat, on the ranks that ask for them: for the exported model. Called by
// engine/train and ModelState::visit_weights.
// Tested by: tests/engine/zero/model_state_test.cc, tests/engine/train/saving_test.cc
#pragma once

#include <functional>
#include <vector>

#include "engine/zero/flat.h"

namespace dsj::zero {

/// Gathers one flat at a time. Then each rank calls visit(slot, whole tensor on the host, compute
/// type) for the parameters for which here(slot) holds on it. Collective: the same flats on all
/// ranks, each parameter on any of them.
void visit_weights(const std::vector<Flat*>& flats,
                   const std::function<bool(const layout::Slot&)>& here,
                   const std::function<void(const layout::Slot&, const at::Tensor&)>& visit);

}  // namespace dsj::zero

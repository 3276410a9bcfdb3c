// Converts an update's numbers to the kernels' form: its rule for one element (element_rules.h).
// Pure, torch-free.
#pragma once

#include "engine/optim/optimizer.h"

namespace dsj::optim {

/// The rule of `update` for parameters with `states` vectors. It uses the first ones; the others
/// are the optimizer's own (OneBitLamb's fresh variance). LAMB's rule has the coefficient 1.
ElementRule element_rule(const Update& update, int states);
/// LAMB's first pass.
LambMoments lamb_moments(const LambRule& rule);

}  // namespace dsj::optim

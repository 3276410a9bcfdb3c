// An update's numbers as the kernels take them: its rule for one element (element_rules.h). Pure,
// torch-free.
#pragma once

#include "engine/optim/optimizer.h"

namespace dsj::optim {

/// The rule of `update`, for parameters that keep `states` vectors: it takes the first of them, what
/// follows is the optimizer's own (OneBitLamb's fresh variance). LAMB's has the coefficient 1.
ElementRule element_rule(const Update& update, int states);
/// LAMB's first pass.
LambMoments lamb_moments(const LambRule& rule);

}  // namespace dsj::optim

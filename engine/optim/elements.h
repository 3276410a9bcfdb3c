// An update's numbers as the kernels take them: its rule for one element (element_rules.h), in
// fp32. Doubles are combined first and rounded once, as PyTorch does. Pure, torch-free.
#pragma once

#include <variant>

#include "engine/optim/element_rules.h"
#include "engine/optim/optimizer.h"

namespace dsj::optim {

using ElementRule = ElementRules::As<std::variant>;

/// The rule of `update`, for parameters that keep `states` vectors: it takes the first of them, what
/// follows is the optimizer's own (OneBitLamb's fresh variance). LAMB's has the coefficient 1.
ElementRule element_rule(const Update& update, int states);
/// LAMB's first pass.
LambMoments lamb_moments(const LambRule& rule);

}  // namespace dsj::optim

// One update of a whole parameter, as a step makes it.
#pragma once

#include <ATen/ATen.h>

#include <variant>

#include "engine/zero/flat/update.h"

namespace dsj::testing_support {

/// LAMB's two passes, where it is LAMB.
inline void update_parameter(const optim::Update& update, zero::UpdateSpan span) {
  if (update.parameter_sums()) {
    const at::Tensor sums = at::zeros({1, 2}, at::kDouble);
    span.sums = sums.select(0, 0);
    zero::lamb_moments(update, {&span, 1});
    span.coefficient = zero::lamb_coefficients(std::get<optim::LambRule>(update.rule), sums);
  }
  zero::update_span(update, span);
}

}  // namespace dsj::testing_support

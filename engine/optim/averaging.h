// Where the division by the world size happens when gradients are averaged. In 16 bits the place
// decides what overflows; elsewhere it is free. The one place that knows; pure, torch-free.
#pragma once

#include "common/dsconfig/resolved.h"

namespace dsj::optim {

/// gradient = sum over ranks of (local * before), * after, accumulated; the update (and the norm)
/// multiply by at_update. before and after round in the communication type, at_update never does.
struct Averaging {
  double before = 1, after = 1, at_update = 1;
};

/// With W ranks and f = gradient_predivide_factor (ds_config.md 3.5; DeepSpeed 0.19's stages):
///   sum                    1, 1, 1
///   prescale_gradients     1/W, 1, 1
///   f != 1                 1/f, f/W, 1; at stage 3 1/(fW), f, 1
///   else, fp16 involved    1/W, 1, 1: what no rank's gradient overflows, their mean does not
///   else                   1, 1, 1/W: costs no pass over the gradient
Averaging averaging(const dsconfig::ResolvedConfig& config, int world);

}  // namespace dsj::optim

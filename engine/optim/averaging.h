// Where gradient averaging divides by the world size. In 16 bits the place decides what overflows;
// elsewhere it makes no difference. Nothing else decides it. Pure, torch-free.
#pragma once

#include "job/dsconfig/resolved.h"

namespace dsj::optim {

/// gradient = after * (sum over ranks of before * local), then accumulated. The update and the norm
/// multiply by at_update. before and after round in the communication type; at_update never rounds.
struct Averaging {
  double before = 1, after = 1, at_update = 1;
};

/// The factors {before, after, at_update}, with W ranks and f = gradient_predivide_factor, as in
/// DeepSpeed 0.19's stages. The first row that applies:
///   one rank, or a sum is asked for    1, 1, 1
///   prescale_gradients                 1/W, 1, 1
///   f != 1, stage 3                    1/(fW), f, 1
///   f != 1, other stages               1/f, f/W, 1
///   fp16 takes part                    1/W, 1, 1: if no rank's gradient overflows, the mean fits
///   else                               1, 1, 1/W: costs no pass over the gradient
Averaging averaging(const dsconfig::ResolvedConfig& config, int world);

}  // namespace dsj::optim

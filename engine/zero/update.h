// One optimizer update over a run of elements, on whatever device its tensors lie: fast kernels
// on the CPU where there are some, else ATen operations tile by tile. The plain ATen form is the
// oracle. Not collective; knows nothing of flats.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "engine/optim/optimizer.h"

namespace dsj::zero {

/// The tensors of a run of n elements: all on one device, contiguous, 1-d.
struct UpdateSpan {
  at::Tensor p;                        ///< fp32 master [n]
  at::Tensor grad;                     ///< fp32, bf16 or fp16 [n]; only read
  std::span<const at::Tensor> states;  ///< fp32 [n] each, in the order of optim::states_of()
  at::Tensor low = {};                 ///< undefined, or the 16-bit copy of p [n], written too
};

/// Applies `update`. `coefficient`: LAMB's for the parameter that the run belongs to (1 for other
/// optimizers); lamb_moments() must have updated its moments before. The result does not depend on
/// the number of threads. How the run is cut changes at most a last bit, where ATen's vector and
/// scalar code differ.
void update_span(const optim::Update& update, const UpdateSpan& span, double coefficient = 1);

/// The same as ATen operations on the whole run: readable, slow, any device.
void update_span_reference(const optim::Update& update, const UpdateSpan& span,
                           double coefficient = 1);

/// Sums of squares over a run of one parameter, in double. lamb_coefficient() takes their sum over
/// the parameter's runs and ranks.
struct LambSums {
  double parameter = 0, update = 0;
};

/// LAMB's first pass over a run of one parameter: updates both moments, and returns the sums.
LambSums lamb_moments(const optim::Update& update, const UpdateSpan& span);
LambSums lamb_moments_reference(const optim::Update& update, const UpdateSpan& span);

}  // namespace dsj::zero

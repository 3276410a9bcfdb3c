// One optimizer update over a run of elements, whatever tier its tensors lie on: fast kernels on
// the CPU where there are some, tiles of ATen operations elsewhere; and the plain ATen form as
// oracle. No collective, no knowledge of flats.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "engine/optim/optimizer.h"

namespace dsj::zero {

/// The tensors of a run of n elements; all on one device, contiguous, 1-d.
struct UpdateSpan {
  at::Tensor p;                        ///< fp32 master [n]
  at::Tensor grad;                     ///< fp32, bf16 or fp16 [n]; only read
  std::span<const at::Tensor> states;  ///< fp32 [n] each, in the order of optim::states_of()
  at::Tensor low = {};                 ///< undefined, or the 16-bit copy of p [n], written too
};

/// Applies `update`. `coefficient`: LAMB's of the parameter that the run belongs to (others: 1);
/// its moments must have been updated by lamb_moments() before. The result does not depend on the
/// number of threads, nor on how a run was cut, except by a last bit of vector against scalar code
/// in ATen.
void update_span(const optim::Update& update, const UpdateSpan& span, double coefficient = 1);

/// The same as whole-run ATen operations: readable, slow, any device.
void update_span_reference(const optim::Update& update, const UpdateSpan& span,
                           double coefficient = 1);

/// Sums of squares of a run of one parameter, in double: what lamb_coefficient() takes once summed
/// over the parameter's runs (and ranks).
struct LambSums {
  double parameter = 0, update = 0;
};

/// LAMB's first pass over a run of one parameter: updates both moments, and returns the sums.
LambSums lamb_moments(const optim::Update& update, const UpdateSpan& span);
LambSums lamb_moments_reference(const optim::Update& update, const UpdateSpan& span);

}  // namespace dsj::zero

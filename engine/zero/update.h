// One optimizer update over a run of elements, by the kernels of the device that its tensors lie on
// (engine/device/device.h). Nothing waits for the device: sums and coefficients are tensors there.
// Not collective; knows nothing of flats.
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

/// Applies `update`. `coefficient` [1] double: LAMB's for the parameter that the run belongs to
/// (undefined: 1, as for other optimizers); lamb_moments() must have updated its moments before.
/// The result does not depend on the number of threads. How the run is cut changes at most a last
/// bit, where libtorch's vector and scalar code differ.
void update_span(const optim::Update& update, const UpdateSpan& span,
                 const at::Tensor& coefficient = {});

/// LAMB's first pass over a run of one parameter: updates both moments, and adds the run's sums of
/// squares of parameter and update to `sums` [2] double. lamb_coefficients() takes their sum over
/// the parameter's runs and ranks. `sums` and `coefficient` may lie on another device than the span
/// (offloaded state): they are copied over.
void lamb_moments(const optim::Update& update, const UpdateSpan& span, const at::Tensor& sums);

/// LAMB's coefficients [n] double from the sums [n, 2] of whole parameters, on their device.
at::Tensor lamb_coefficients(const optim::LambRule& rule, const at::Tensor& sums);

}  // namespace dsj::zero

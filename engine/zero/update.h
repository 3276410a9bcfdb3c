// One optimizer update over runs of elements, and the squares behind its norm, by the kernels of the device that its tensors lie on
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
  at::Tensor grad;                     ///< fp32, bf16 or fp16 [n]; only read, but see `direction`
  std::span<const at::Tensor> states;  ///< fp32 [n] each, in the order of optim::states_of()
  at::Tensor low = {};                 ///< undefined, or the 16-bit copy of p [n], written too
  /// LAMB's, of the parameter that the run belongs to; they may lie on another device than the run
  /// (offloaded state), and are copied over then. coefficient [1] double: undefined: 1. sums [2]
  /// double: for lamb_moments().
  at::Tensor coefficient = {}, sums = {};
  /// LAMB's, fp32 [n], or undefined: lamb_moments() may leave the update's direction here for
  /// update_spans(), which else computes it once more. It may be the gradient itself.
  at::Tensor direction = {};
};

/// Applies `update` to all spans, which lie on one device and have the same number of states: a few
/// launches, whatever their number. For LAMB lamb_moments() must have updated the moments before.
/// The result does not depend on the number of threads, nor on how the runs are cut.
void update_spans(const optim::Update& update, std::span<const UpdateSpan> spans);
inline void update_span(const optim::Update& update, const UpdateSpan& span) {
  update_spans(update, {&span, 1});
}

/// LAMB's first pass, each span a run of one parameter: updates both moments, and adds the run's
/// sums of squares of parameter and update to `span.sums`. lamb_coefficients() takes their sum over
/// the parameter's runs and ranks.
void lamb_moments(const optim::Update& update, std::span<const UpdateSpan> spans);

/// LAMB's coefficients [n] double from the sums [n, 2] of whole parameters, on their device.
at::Tensor lamb_coefficients(const optim::LambRule& rule, const at::Tensor& sums);

/// Adds the sum of squares of grad [n] (fp32, bf16 or fp16) to sum [] (double, on its device), in a
/// fixed order whatever the number of threads.
void add_sum_of_squares(const at::Tensor& grad, const at::Tensor& sum);

}  // namespace dsj::zero

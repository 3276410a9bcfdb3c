// One optimizer update over runs of elements, and the sum of squares for the gradient norm, by the
// device's kernels (engine/device/device.h). Never waits for the device: sums and coefficients are
// tensors there. Not collective; independent of flats.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "engine/optim/optimizer.h"

namespace dsj::zero {

/// The tensors of a run of n elements: contiguous, 1-d, all on one device.
struct UpdateSpan {
  at::Tensor p;                        ///< fp32 master [n]
  at::Tensor grad;                     ///< fp32, bf16 or fp16 [n]; read-only, except by `direction`
  std::span<const at::Tensor> states;  ///< fp32 [n] each, in the order of optim::states_of()
  at::Tensor low = {};                 ///< 16-bit copy of p [n], also written; or undefined
  /// LAMB: values of the run's parameter; copied to the run's device if they are on another one
  /// (offloaded state). coefficient [1] double, undefined means 1. sums [2] double: for
  /// lamb_moments().
  at::Tensor coefficient = {}, sums = {};
  /// LAMB: fp32 [n] or undefined. lamb_moments() may leave the update's direction here, so that
  /// update_spans() need not compute it again. It may be the gradient itself.
  at::Tensor direction = {};
};

/// Applies `update` to all spans, which must be on one device and have the same number of states.
/// The number of launches does not depend on the number of spans. LAMB needs lamb_moments() first.
/// The result does not depend on the number of threads or on how the runs are cut.
void update_spans(const optim::Update& update, std::span<const UpdateSpan> spans);
inline void update_span(const optim::Update& update, const UpdateSpan& span) {
  update_spans(update, {&span, 1});
}

/// LAMB's first pass; each span is a run of one parameter. Updates both moments and adds the run's
/// sums of squares of parameter and update to `span.sums`. lamb_coefficients() needs their totals
/// over the parameter's runs and ranks.
void lamb_moments(const optim::Update& update, std::span<const UpdateSpan> spans);

/// Returns LAMB's coefficients [n] double from whole parameters' sums [n, 2], on their device.
at::Tensor lamb_coefficients(const optim::LambRule& rule, const at::Tensor& sums);

/// Adds the sum of squares of grad [n] (fp32, bf16 or fp16) to sum [] (double, on its device). The
/// order of addition is fixed and does not depend on the number of threads.
void add_sum_of_squares(const at::Tensor& grad, const at::Tensor& sum);

}  // namespace dsj::zero

// The sum of squares behind the gradient norm, by the kernels of the gradient's device.
#pragma once

#include <ATen/core/Tensor.h>

namespace dsj::zero {

/// Adds the sum of squares of grad [n] (fp32, bf16 or fp16) to sum [] (double, on its device), in a
/// fixed order whatever the number of threads.
void add_sum_of_squares(const at::Tensor& grad, const at::Tensor& sum);

}  // namespace dsj::zero

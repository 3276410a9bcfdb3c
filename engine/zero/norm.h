// The gradient norm's sum of squares: the fast kernel on the CPU, ATen elsewhere.
#pragma once

#include <ATen/core/Tensor.h>

namespace dsj::zero {

/// In double; fixed order whatever the number of threads. grad: fp32, bf16 or fp16 [n].
double sum_of_squares(const at::Tensor& grad);

}  // namespace dsj::zero

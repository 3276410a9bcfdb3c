// The sum of squares behind the gradient norm: a fast kernel on the CPU, ATen elsewhere.
#pragma once

#include <ATen/core/Tensor.h>

namespace dsj::zero {

/// In double, in a fixed order whatever the number of threads. grad: fp32, bf16 or fp16 [n].
double sum_of_squares(const at::Tensor& grad);

}  // namespace dsj::zero

// AdamW and the gradient norm over tensors: the fast kernels on the CPU, ATen elsewhere; and the
// ATen form as oracle.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/kernels/kernels.h"

namespace dsj::zero {

/// p, m, v: fp32 [n]; grad: fp32 or bf16 [n]; low: undefined, or the 16-bit copy [n] written in the
/// same pass. On the CPU multi-threaded; the result does not depend on the number of threads.
void adamw_step(const kernels::AdamW& args, at::Tensor p, at::Tensor grad, at::Tensor m,
                at::Tensor v, at::Tensor low);

/// The same by ATen operations, in fp32: readable, slow, any device. (Loshchilov & Hutter 2019;
/// ds_config.md 3.7)
void adamw_step_reference(const kernels::AdamW& args, at::Tensor p, at::Tensor grad, at::Tensor m,
                          at::Tensor v, at::Tensor low);

/// In double; fixed order whatever the number of threads. grad: fp32 or bf16 [n].
double sum_of_squares(const at::Tensor& grad);

}  // namespace dsj::zero

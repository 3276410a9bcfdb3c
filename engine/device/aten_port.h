// What the two files of the port by libtorch's operations share. Callers take aten_port() of
// device.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/kernels/port.h"

namespace dsj::device {

at::ScalarType scalar_type(kernels::Type type);
/// A view of memory on `place`: [rows, width], or [width] for one row.
at::Tensor tensor_of(const kernels::Rows& rows, at::Device place);
at::Tensor vector_of(const kernels::Rows& row, at::Device place);
/// A view of n values.
at::Tensor vector_of(const float* data, int64_t n, at::Device place);
at::Tensor vector_of(const double* data, int64_t n, at::Device place);
at::Tensor vector_of(const int64_t* data, int64_t n, at::Device place);

/// The port's update and LAMB's two passes, of a span on `on` (aten_update.cc).
void aten_update(at::Device on, const optim::Update& update, const kernels::Span& span);
void aten_lamb_moments(at::Device on, const optim::Update& update, const kernels::Span& span);
void aten_lamb_coefficients(at::Device on, const optim::LambRule& rule, const double* sums,
                            double* coefficients, int64_t n);

}  // namespace dsj::device

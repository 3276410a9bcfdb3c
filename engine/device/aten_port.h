// Shared by the two files of the port that runs libtorch's operations. Callers use aten_port() of
// device.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "engine/kernels/port.h"

namespace dsj::device {

at::ScalarType scalar_type(kernels::Type type);
/// A view of device memory: [rows, width], or [width] for one row.
at::Tensor tensor_of(const kernels::Rows& rows, at::Device place);
at::Tensor vector_of(const kernels::Rows& row, at::Device place);
/// A view of contiguous values.
at::Tensor vector_of(std::span<const float> values, at::Device place);
at::Tensor vector_of(std::span<const double> values, at::Device place);
at::Tensor vector_of(std::span<const int64_t> values, at::Device place);

/// The port's operations on optimizers (aten_update.cc).
void compute(at::Device on, const kernels::UpdateSpans& op);
void compute(at::Device on, const kernels::LambMoments& op);
void compute(at::Device on, const kernels::LambCoefficients& op);

}  // namespace dsj::device

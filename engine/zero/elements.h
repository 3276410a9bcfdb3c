// From a CPU tensor's type to the kernels of that type.
// Tested by: tests/engine/zero/norm_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include "common/check.h"
#include "engine/kernels/kernels.h"

namespace dsj::zero {

/// Calls f(kernels::Typed<T>, T*) with T the tensor's element: float, Bf16 or Half.
template <typename F>
auto with_elements(const at::Tensor& tensor, F f) {
  const auto& table = kernels::table();
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return f(table.f32, tensor.data_ptr<float>());
    case at::kBFloat16:
      return f(table.bf16, reinterpret_cast<kernels::Bf16*>(tensor.data_ptr()));
    case at::kHalf:
      return f(table.half, reinterpret_cast<kernels::Half*>(tensor.data_ptr()));
    default:
      DSJ_CHECK(false, "no kernels of this type");
  }
}

}  // namespace dsj::zero

#include "engine/zero/norm.h"

#include "common/check.h"
#include "engine/device/device.h"

namespace dsj::zero {

void add_sum_of_squares(const at::Tensor& grad, const at::Tensor& sum) {
  DSJ_CHECK(sum.device() == grad.device());
  device::On(grad).run(
      kernels::SumOfSquares{.x = device::row_of(grad), .sum = sum.data_ptr<double>()});
}

}  // namespace dsj::zero

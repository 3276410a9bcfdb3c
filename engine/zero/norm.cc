#include "engine/zero/norm.h"

#include "common/check.h"
#include "engine/device/device.h"

namespace dsj::zero {

void add_sum_of_squares(const at::Tensor& grad, const at::Tensor& sum) {
  const device::On on(grad);
  DSJ_CHECK(sum.device() == grad.device());
  on->sum_of_squares(on.stream, device::row_of(grad), sum.data_ptr<double>());
}

}  // namespace dsj::zero

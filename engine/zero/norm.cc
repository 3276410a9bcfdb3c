#include "engine/zero/norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <numeric>
#include <vector>

#include "engine/kernels/kernels.h"

namespace dsj::zero {
namespace {

constexpr int64_t kBlock = 1 << 16;  // elements per partial sum; a multiple of the kernels' 4096

kernels::Bf16* bf16_data(const at::Tensor& tensor) {
  return reinterpret_cast<kernels::Bf16*>(tensor.data_ptr<at::BFloat16>());
}

}  // namespace

double sum_of_squares(const at::Tensor& grad) {
  if (!grad.is_cpu() || grad.scalar_type() == at::kHalf) {
    return grad.to(at::kDouble).square().sum().item<double>();
  }
  const int64_t blocks = (grad.numel() + kBlock - 1) / kBlock;
  std::vector<double> partial(blocks);
  const auto& table = kernels::table();
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlock, count = std::min(kBlock, grad.numel() - first);
      partial[block] = grad.scalar_type() == at::kFloat
                           ? table.f32.sum_of_squares(grad.data_ptr<float>() + first, count)
                           : table.bf16.sum_of_squares(bf16_data(grad) + first, count);
    }
  });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

}  // namespace dsj::zero

#include "engine/zero/norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <numeric>
#include <vector>

#include "engine/zero/elements.h"

namespace dsj::zero {
namespace {

constexpr int64_t kBlock = 1 << 16;  // elements per partial sum; a multiple of the kernels' 4096

}  // namespace

double sum_of_squares(const at::Tensor& grad) {
  if (!grad.is_cpu()) return grad.to(at::kDouble).square().sum().item<double>();
  const int64_t blocks = (grad.numel() + kBlock - 1) / kBlock;
  std::vector<double> partial(blocks);
  with_elements(grad, [&](const auto& kernels, const auto* data) {
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kBlock, count = std::min(kBlock, grad.numel() - first);
        partial[block] = kernels.sum_of_squares(data + first, count);
      }
    });
  });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

}  // namespace dsj::zero

#include "engine/zero/adamw.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "common/check.h"

namespace dsj::zero {
namespace {

constexpr int64_t kGrain =
    1 << 15;  // elements: large enough to hide the fork, small enough to stay in L2
constexpr int64_t kBlock = 1 << 16;  // elements per partial sum; a multiple of the kernels' 4096

kernels::Bf16* bf16_data(const at::Tensor& tensor) {
  return reinterpret_cast<kernels::Bf16*>(tensor.data_ptr<at::BFloat16>());
}

}  // namespace

void adamw_step(const kernels::AdamW& args, at::Tensor p, at::Tensor grad, at::Tensor m,
                at::Tensor v, at::Tensor low) {
  const bool half =
      grad.scalar_type() == at::kHalf || (low.defined() && low.scalar_type() == at::kHalf);
  if (!p.is_cpu() || half) return adamw_step_reference(args, p, grad, m, v, low);
  float *pd = p.data_ptr<float>(), *md = m.data_ptr<float>(), *vd = v.data_ptr<float>();
  kernels::Bf16* copy = low.defined() ? bf16_data(low) : nullptr;
  const auto& table = kernels::table();
  at::parallel_for(0, p.numel(), kGrain, [&](int64_t begin, int64_t end) {
    kernels::Bf16* out = copy ? copy + begin : nullptr;
    if (grad.scalar_type() == at::kFloat) {
      table.f32.adamw(args, pd + begin, grad.data_ptr<float>() + begin, md + begin, vd + begin, out,
                      end - begin);
    } else {
      table.bf16.adamw(args, pd + begin, bf16_data(grad) + begin, md + begin, vd + begin, out,
                       end - begin);
    }
  });
}

void adamw_step_reference(const kernels::AdamW& a, at::Tensor p, at::Tensor grad, at::Tensor m,
                          at::Tensor v, at::Tensor low) {
  at::Tensor g = grad.to(at::kFloat).mul(a.grad_scale);
  if (a.decoupled) {
    p.mul_(1.0 - static_cast<double>(a.lr) * a.weight_decay);
  } else {
    g.add_(p, a.weight_decay);
  }
  m.mul_(a.beta1).add_(g, 1.0 - a.beta1);
  v.mul_(a.beta2).addcmul_(g, g, 1.0 - a.beta2);
  const at::Tensor denominator = v.sqrt().div_(std::sqrt(a.bias_correction2)).add_(a.eps);
  p.addcdiv_(m, denominator, -a.lr / a.bias_correction1);
  if (low.defined()) low.copy_(p);
}

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

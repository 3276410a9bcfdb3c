#include "engine/zero/update.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <variant>
#include <vector>

#include "engine/zero/elements.h"

namespace dsj::zero {
namespace {

/// Elements per task: large enough to hide the cost of a task, small enough that the tile's
/// temporaries stay in L2.
constexpr int64_t kTile = 1 << 15;
constexpr int64_t kDeviceTile = 1 << 22;  ///< bounds the temporaries on an accelerator

/// The 16-bit copy from element `begin` on.
kernels::LowCopy low_copy(const at::Tensor& low, int64_t begin) {
  if (!low.defined()) return nullptr;
  if (low.scalar_type() == at::kHalf)
    return reinterpret_cast<kernels::Half*>(low.data_ptr<at::Half>()) + begin;
  return reinterpret_cast<kernels::Bf16*>(low.data_ptr<at::BFloat16>()) + begin;
}

void adam(const optim::AdamRule& r, double grad_scale, const UpdateSpan& span) {
  const kernels::AdamW args{.lr = r.lr,
                            .beta1 = r.beta1,
                            .beta2 = r.beta2,
                            .eps = r.eps,
                            .weight_decay = r.weight_decay,
                            .decoupled = r.decoupled,
                            .bias_correction1 = r.correction1,
                            .bias_correction2 = r.correction2,
                            .grad_scale = grad_scale};
  float *p = span.p.data_ptr<float>(), *m = span.states[0].data_ptr<float>(),
        *v = span.states[1].data_ptr<float>();
  with_elements(span.grad, [&](const auto& kernels, const auto* grad) {
    at::parallel_for(0, span.p.numel(), kTile, [&](int64_t begin, int64_t end) {
      kernels.adamw(args, p + begin, grad + begin, m + begin, v + begin, low_copy(span.low, begin),
                    end - begin);
    });
  });
}

/// Calls f(tile index, the tile's span) for every tile; on the CPU on all threads.
template <typename F>
void for_tiles(const UpdateSpan& span, F f) {
  const int64_t tile = span.p.is_cpu() ? kTile : kDeviceTile;
  const int64_t tiles = (span.p.numel() + tile - 1) / tile;
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * tile, count = std::min(tile, span.p.numel() - first);
      std::vector<at::Tensor> states;
      for (const auto& state : span.states) states.push_back(state.narrow(0, first, count));
      f(i, UpdateSpan{span.p.narrow(0, first, count), span.grad.narrow(0, first, count), states,
                      span.low.defined() ? span.low.narrow(0, first, count) : at::Tensor()});
    }
  };
  if (span.p.is_cpu())
    at::parallel_for(0, tiles, 1, run);
  else
    run(0, tiles);
}

}  // namespace

void update_span(const optim::Update& update, const UpdateSpan& span, double coefficient) {
  const auto* adam_rule = std::get_if<optim::AdamRule>(&update.rule);
  if (adam_rule && span.p.is_cpu()) return adam(*adam_rule, update.grad_scale, span);
  for_tiles(span, [&](int64_t, const UpdateSpan& tile) {
    update_span_reference(update, tile, coefficient);
  });
}

LambSums lamb_moments(const optim::Update& update, const UpdateSpan& span) {
  // One sum per tile, added in order: the result does not depend on the number of threads.
  const int64_t tile = span.p.is_cpu() ? kTile : kDeviceTile;
  std::vector<LambSums> sums((span.p.numel() + tile - 1) / tile);
  for_tiles(span, [&](int64_t i, const UpdateSpan& part) {
    sums[i] = lamb_moments_reference(update, part);
  });
  LambSums total;
  for (const auto& sum : sums) {
    total.parameter += sum.parameter;
    total.update += sum.update;
  }
  return total;
}

}  // namespace dsj::zero

// The optimizer step on the host, against the memory bandwidth of the same run and against
// libtorch's fused AdamW. Seven rounds, all in turn; medians.
//
// A parameter's fp32 step moves 28 bytes: value and two moments are read and written, the gradient
// is read. It is 28 too with a bf16 gradient and a bf16 copy written in the same pass. The
// bandwidth is that of STREAM's triad, a[i] = b[i] + s * c[i], at STREAM's 12 bytes per element.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "bench/timing.h"
#include "engine/kernels/kernels.h"
#include "engine/memory/counting_allocator.h"
#include "engine/zero/update.h"

namespace {

using dsj::bench::median;
using dsj::bench::seconds_of;
constexpr int kRounds = 7;

}  // namespace

/// Arguments: millions of parameters (default 24).
int main(int argc, char** argv) {
  using namespace dsj;
  memory::install();
  const int64_t n = (argc > 1 ? std::atoll(argv[1]) : 24) * 1'000'000;
  const at::Tensor p = at::randn({n}), m = at::randn({n}).mul_(1e-3), v = at::rand({n}).mul_(1e-6);
  const at::Tensor grad = at::randn({n}), step = at::ones({});
  at::Tensor scratch = at::empty({n});
  const at::Tensor low_grad = grad.to(at::kBFloat16), low = p.to(at::kBFloat16);
  const optim::Update update{.rule = optim::AdamRule{.lr = 1e-4,
                                                     .beta1 = 0.9,
                                                     .beta2 = 0.999,
                                                     .eps = 1e-8,
                                                     .weight_decay = 0.01,
                                                     .decoupled = true,
                                                     .correction1 = 0.1,
                                                     .correction2 = 0.001}};
  const std::vector<at::Tensor> states = {m, v};
  const std::vector<std::pair<const char*, std::function<void()>>> sides = {
      {"triad", [&] { at::add_out(scratch, p, grad, 3); }},
      {"ours, fp32",
       [&] {
         zero::update_span(update, {p, grad, states});
       }},
      {"ours, bf16 gradient and copy",
       [&] {
         zero::update_span(update, {p, low_grad, states, low});
       }},
      {"libtorch's fused AdamW, fp32", [&] {
         at::_fused_adamw_({p}, {grad}, {m}, {v}, {}, {step}, 1e-4, 0.9, 0.999, 0.01, 1e-8, false,
                           false);
       }}};
  std::vector<std::vector<double>> times(sides.size());
  for (int round = -1; round < kRounds; ++round) {  // the first warms up
    for (size_t i = 0; i < sides.size(); ++i) {
      const double seconds = seconds_of(sides[i].second);
      if (round >= 0) times[i].push_back(seconds);
    }
  }
  const double millions = static_cast<double>(n) / 1e6;
  const double bandwidth = 12 * millions / 1e3 / median(times[0]);
  std::printf("%.0f M parameters, %d threads, kernels %s, median of %d\n", millions,
              at::get_num_threads(), kernels::table().isa, kRounds);
  std::printf("%-32s %10s %8s %14s %14s\n", "", "Mparam/s", "GB/s", "of the triad",
              "over libtorch");
  std::printf("%-32s %10s %8.1f\n", sides[0].first, "", bandwidth);
  for (size_t i = 1; i < sides.size(); ++i) {
    const double rate = millions / median(times[i]);
    std::printf("%-32s %10.0f %8.1f %14.2f %14.2f\n", sides[i].first, rate, rate * 28 / 1e3,
                rate * 28 / 1e3 / bandwidth, median(times[3]) / median(times[i]));
  }
}

// The optimizer step on the host, against the memory bandwidth of the same run and against
// libtorch's fused AdamW. Seven rounds, all in turn; medians.
//
// A parameter's fp32 step moves 28 bytes: value and two moments are read and written, the gradient
// is read. It is 28 too with a bf16 gradient and a bf16 copy written in the same pass. The
// bandwidth is that of STREAM's triad, a[i] = b[i] + s * c[i], at STREAM's 12 bytes per element.
//
// Then every optimizer, in turn: what it moves per second, over what AdamW moves in fp32. Once with a
// gradient in fp32, and with one in bf16 and in fp16, whose copy of the value is written in the same
// pass. In CPU seconds, so that other programs disturb the ratio little.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "engine/kernels/kernels.h"
#include "engine/memory/counting_allocator.h"
#include "engine/optim/optimizer.h"
#include "engine/zero/flat/update.h"
#include "job/dsconfig/config/optimizers.h"

namespace {

using dsj::bench::median;
using dsj::bench::seconds_of;
constexpr int kRounds = 7;

double cpu_seconds_of(const std::function<void()>& run) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  run();
  return now() - begin;
}

struct Kind {
  std::string name;
  dsj::optim::OptimizerConfig config;
};

std::vector<Kind> kinds() {
  std::vector<Kind> all;
  for (const auto& one : dsj::dsconfig::kOptimizers) {
    if (!one.refusal.empty() || one.communicates || one.name == "Adam") continue;
    all.push_back({std::string(one.name), one.defaults});
    auto& config = all.back().config;
    config.weight_decay = 0.01;
    if (one.name != "SGD" && one.name != "RMSprop") continue;
    Kind more{all.back().name + " with momentum", config};
    more.config.momentum = 0.9;
    more.config.centered = true;
    all.push_back(more);
  }
  return all;
}

/// Types of a gradient and of the copy of the value.
struct Types {
  const char* name;
  at::ScalarType grad;
  bool copy;
};
constexpr Types kTypes[] = {{"fp32", at::kFloat, false},
                            {"bf16 and copy", at::kBFloat16, true},
                            {"fp16 and copy", at::kHalf, true}};

/// Bytes per parameter that a step cannot leave unmoved: the gradient is read, value and states are
/// read and written, the copy is written. LAMB's first pass only reads the value; its second cannot
/// know its step before the first has seen the whole parameter. It reads the moments again, or its
/// direction, which the first has then written.
int64_t bytes_of(const Kind& kind, const Types& types) {
  const auto states = static_cast<int64_t>(dsj::optim::states_of(kind.config).size());
  const bool twice = kind.config.kind == dsj::optim::OptimizerKind::Lamb;
  return static_cast<int64_t>(c10::elementSize(types.grad)) + 8 * (1 + states) +
         (types.copy ? 2 : 0) + (twice ? 12 : 0);
}

/// [kind][type]: seconds of each round.
using Times = std::vector<std::array<std::vector<double>, std::size(kTypes)>>;

Times run_every_optimizer(const std::vector<Kind>& all, int64_t n) {
  using namespace dsj;
  const at::Tensor p = at::randn({n}), wide = at::randn({n}).mul_(1e-3);
  std::array<at::Tensor, std::size(kTypes)> grads, of_lamb, lows;
  for (size_t i = 0; i < grads.size(); ++i) {
    grads[i] = wide.to(kTypes[i].grad);
    of_lamb[i] = grads[i].clone();  // the direction may take its place, as in training
    if (kTypes[i].copy) lows[i] = at::empty_like(grads[i]);
  }
  const std::vector<at::Tensor> values = {at::rand({n}).mul_(1e-3), at::rand({n}).mul_(1e-3),
                                          at::rand({n}).mul_(1e-6)};
  const at::Tensor sums = at::zeros({2}, at::kDouble), one = at::ones({1}, at::kDouble);
  Times times(all.size());
  for (int round = -1; round < kRounds; ++round) {  // the first warms up
    for (size_t i = 0; i < all.size(); ++i) {
      const optim::Update update =
          optim::make_update(all[i].config, {.lr = 1e-5, .previous_lr = 1e-5}, 9, 1);
      const std::span<const at::Tensor> states(values.data(),
                                               optim::states_of(all[i].config).size());
      for (size_t type = 0; type < grads.size(); ++type) {
        const bool twice = update.parameter_sums();
        const at::Tensor& grad = twice ? of_lamb[type] : grads[type];
        const zero::UpdateSpan span{
            .p = p,
            .grad = grad,
            .states = states,
            .low = lows[type],
            .coefficient = one,
            .sums = sums,
            .direction = twice && grad.scalar_type() == at::kFloat ? grad : at::Tensor()};
        const double seconds = cpu_seconds_of([&] {
          if (twice) zero::lamb_moments(update, {&span, 1});
          zero::update_span(update, span);
        });
        if (round >= 0) times[i][type].push_back(seconds);
      }
    }
  }
  return times;
}

/// The second best of a kind's rounds in GB per CPU second.
double rate_of(const Kind& kind, const Types& types, std::vector<double> seconds, int64_t n) {
  std::ranges::sort(seconds);
  return static_cast<double>(bytes_of(kind, types) * n) / 1e9 / seconds[1];
}

void every_optimizer(int64_t n) {
  const std::vector<Kind> all = kinds();
  const Times times = run_every_optimizer(all, n);
  const double adamw = rate_of(all[0], kTypes[0], times[0][0], n);
  std::printf("\nGB per CPU second, second best of %d; over AdamW in fp32\n%-24s", kRounds, "");
  for (const Types& types : kTypes) std::printf(" %6s %16s %5s", "bytes", types.name, "over");
  std::printf("\n");
  for (size_t i = 0; i < all.size(); ++i) {
    std::printf("%-24s", all[i].name.c_str());
    for (size_t type = 0; type < std::size(kTypes); ++type) {
      const double rate = rate_of(all[i], kTypes[type], times[i][type], n);
      std::printf(" %6lld %16.1f %5.2f", static_cast<long long>(bytes_of(all[i], kTypes[type])),
                  rate, rate / adamw);
    }
    std::printf("\n");
  }
}

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
  every_optimizer(n);
}

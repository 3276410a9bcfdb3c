#include "job/dsconfig/config/rates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "common/text.h"

namespace dsj::dsconfig {
namespace {

std::optional<std::string> problem_of(const Scheduled& now) {
  if (!(std::isfinite(now.lr) && now.lr >= 0)) return "rate is " + text::number(now.lr);
  if (now.lr > std::numeric_limits<float>::max())
    return "rate is " + text::number(now.lr) + ", more than updates in fp32 can take,";
  for (const auto& momentum : {now.momentum, now.beta2})
    if (momentum && !std::isfinite(*momentum)) return "momentum is " + text::number(*momentum);
  return std::nullopt;
}

}  // namespace

Scheduled scheduled(const SchedulerConfig& config, double base_lr, int64_t steps_done) {
  DSJ_CHECK(steps_done >= 0);
  for (auto family : {hugging_face_schedule, deepspeed_schedule, torch_schedule})
    if (const auto found = family(config, base_lr, steps_done)) return *found;
  DSJ_CHECK(false, "scheduler type %s", config.type.c_str());
}

std::optional<BadRate> first_bad_rate(const SchedulerConfig& config, double base_lr,
                                      int64_t steps) {
  constexpr int64_t kEnd = kRatesChecked / 4;
  const int64_t stride = std::max<int64_t>(1, (steps - 2 * kEnd) / (2 * kEnd));
  for (int64_t done = 0; done < steps;) {
    if (const auto what = problem_of(scheduled(config, base_lr, done)))
      return BadRate{done + 1, *what};
    const bool at_an_end = done < kEnd || done >= steps - kEnd;
    done = at_an_end ? done + 1 : std::min(done + stride, steps - kEnd);
  }
  // The last checkpoint records the rate of one more step.
  const double next = scheduled(config, base_lr, steps).lr;
  if (!std::isfinite(next)) return BadRate{steps + 1, "rate is " + text::number(next)};
  return std::nullopt;
}

}  // namespace dsj::dsconfig

#include "common/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace dsj {
namespace {

TEST(Metrics, ValueThatIsNotFiniteIsNull) {
  StepMetrics metrics{.step = 3, .loss = 1.5, .grad_norm = INFINITY};
  const auto json = to_json(metrics);
  EXPECT_EQ(json["loss"], 1.5);
  EXPECT_TRUE(json["grad_norm"].is_null());
}

TEST(Metrics, FixedNames) {
  const auto json = to_json(StepMetrics{});
  for (const char* name : {"step", "loss", "lr", "grad_norm", "loss_scale", "skipped", "tokens",
                           "tokens_per_second", "step_seconds", "wire_bytes", "host_rss_bytes"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
  EXPECT_EQ(json.size(), 11u);
}

}  // namespace
}  // namespace dsj

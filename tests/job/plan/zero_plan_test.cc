#include "job/plan/zero_plan.h"

#include <gtest/gtest.h>

namespace dsj::plan {
namespace {

using dsconfig::OffloadDevice;
using dsconfig::ResolvedConfig;

ResolvedConfig at_stage(int stage) {
  ResolvedConfig config;
  config.zero.stage = stage;
  return config;
}

TEST(ZeroPlanTest, OneRankShardsNothing) {
  for (int stage = 0; stage <= 3; ++stage) {
    EXPECT_EQ(effective_stage(at_stage(stage), 1).number, 0);
    EXPECT_EQ(effective_stage(at_stage(stage), 2).number, stage);
  }
  ResolvedConfig config = at_stage(3);
  config.offload.optimizer.device = OffloadDevice::Cpu;
  EXPECT_EQ(effective_stage(config, 1).number, 0);
}

TEST(ZeroPlanTest, OneRankWithOffloadedParametersIsStageThree) {
  for (const OffloadDevice device : {OffloadDevice::Cpu, OffloadDevice::Nvme}) {
    ResolvedConfig config = at_stage(3);
    config.offload.param.device = device;
    EXPECT_EQ(effective_stage(config, 1).number, 3);
  }
}

}  // namespace
}  // namespace dsj::plan

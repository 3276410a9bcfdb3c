#include "agent/health/node_health.h"

#include <gmock/gmock.h>

namespace dsj::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kGiB = int64_t(1) << 30;

NodeFacts healthy() {
  return {.memory_available = 64 * kGiB,
          .scratch_free = kGiB,
          .output_free = 100 * kGiB,
          .newest_checkpoint = 10 * kGiB,
          .shm_bytes = kGiB,
          .clock_ahead = 1.5,
          .driver = DriverFacts{
              .version = "570.1",
              .gpus = {{.index = 0, .uncorrected = 0, .links_up = 18, .links_down = 0},
                       {.index = 1, .uncorrected = 0, .links_up = 18, .links_down = 0}}}};
}
const NodeNeeds kGpuNeeds{.memory_request = 32 * kGiB, .ranks = 2, .gpus = 2};

struct HealthCase {
  const char* name;
  void (*harm)(NodeFacts&);
  bool of_the_node;
  const char* says;
};
struct NodeHealth : testing::TestWithParam<HealthCase> {};

TEST_P(NodeHealth, OneFactMakesOneProblem) {
  NodeFacts facts = healthy();
  GetParam().harm(facts);
  const auto found = judge_node(facts, kGpuNeeds);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].of_the_node, GetParam().of_the_node);
  EXPECT_THAT(found[0].what, HasSubstr(GetParam().says));
  EXPECT_EQ(unfit_because(found), GetParam().of_the_node ? found[0].what : "");
}

INSTANTIATE_TEST_SUITE_P(
    Each, NodeHealth,
    testing::Values(
        HealthCase{"Memory", [](NodeFacts& f) { f.memory_available = 31 * kGiB; }, true,
                   "has 31.0 GiB of memory available, and the container requests 32.0 GiB"},
        HealthCase{"Scratch", [](NodeFacts& f) { f.scratch_free = 5 << 20; }, true,
                   "has 5 MiB free"},
        HealthCase{"Output", [](NodeFacts& f) { f.output_free = 9 * kGiB; }, false,
                   "the newest checkpoint takes 10.0 GiB"},
        HealthCase{"Shm", [](NodeFacts& f) { f.shm_bytes = 64 << 20; }, false, "raise sizeLimit"},
        HealthCase{"ClockBehind", [](NodeFacts& f) { f.clock_ahead = -3600; }, true,
                   "3600 s behind"},
        HealthCase{"ClockAhead", [](NodeFacts& f) { f.clock_ahead = 31; }, true, "31 s ahead of"},
        HealthCase{"Driver",
                   [](NodeFacts& f) { f.driver->problem = "Driver/library version mismatch"; },
                   true, "does not answer: Driver/library version mismatch"},
        HealthCase{"FewerGpus", [](NodeFacts& f) { f.driver->gpus.pop_back(); }, true,
                   "sees 1 GPUs, it asked for 2 (driver 570.1)"},
        HealthCase{"LostGpu", [](NodeFacts& f) { f.driver->gpus[1].lost = true; }, true,
                   "GPU 1 (driver 570.1) is lost"},
        HealthCase{"Ecc", [](NodeFacts& f) { f.driver->gpus[0].uncorrected = 2; }, true,
                   "2 uncorrectable memory errors"},
        HealthCase{"Rows", [](NodeFacts& f) { f.driver->gpus[0].remap_failed = true; }, true,
                   "no spare"},
        HealthCase{"RowsPending", [](NodeFacts& f) { f.driver->gpus[0].remap_pending = true; },
                   false, "at its next reset"},
        HealthCase{
            "Links",
            [](NodeFacts& f) { f.driver->gpus[1] = {.index = 1, .links_up = 16, .links_down = 2}; },
            false, "GPU 1 (driver 570.1) has 16 NVLinks up, another GPU 18"},
        HealthCase{"LinkRecoveries", [](NodeFacts& f) { f.driver->gpus[0].link_recoveries = 3; },
                   false, "GPU 0 (driver 570.1) lost the connection of an NVLink 3 times"},
        HealthCase{"Reset", [](NodeFacts& f) { f.driver->gpus[0].recovery = GpuRecovery::Reset; },
                   true, "GPU 0 (driver 570.1) needs a reset before it works again"},
        HealthCase{"Reboot", [](NodeFacts& f) { f.driver->gpus[1].recovery = GpuRecovery::Reboot; },
                   true, "GPU 1 (driver 570.1) needs a restart of the node"},
        HealthCase{"DrainPeers",
                   [](NodeFacts& f) { f.driver->gpus[1].recovery = GpuRecovery::DrainPeers; }, true,
                   "needs an end of all traffic between GPUs before"},
        HealthCase{"DrainAndReset",
                   [](NodeFacts& f) { f.driver->gpus[1].recovery = GpuRecovery::DrainAndReset; },
                   true, "needs an end of all traffic between GPUs and a reset"},
        HealthCase{"BrokenXid", [](NodeFacts& f) { f.driver->gpus[0].xids = {95}; }, true,
                   "GPU 0 (driver 570.1) reported XID 95 since this pod started: it needs a reset"},
        HealthCase{"ProgramsXid", [](NodeFacts& f) { f.driver->gpus[0].xids = {31}; }, false,
                   "reported XID 31 since this pod started: most often an error of the program"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(NodeHealthFacts, AGpuThatNeedsNothingIsHealthy) {
  NodeFacts facts = healthy();
  facts.driver->gpus[0].recovery = GpuRecovery::None;
  facts.driver->gpus[0].link_recoveries = 0;
  EXPECT_THAT(judge_node(facts, kGpuNeeds), IsEmpty());
}

TEST(NodeHealthFacts, WhatCannotBeReadIsNotJudged) {
  EXPECT_THAT(judge_node({}, kGpuNeeds), IsEmpty());
  EXPECT_THAT(judge_node(healthy(), kGpuNeeds), IsEmpty());
}

TEST(NodeHealthFacts, ADriverThatNobodyAskedForIsNoProblem) {
  NodeFacts facts = healthy();
  facts.driver = DriverFacts{.problem = "Driver Not Loaded"};
  EXPECT_THAT(judge_node(facts, {}), IsEmpty());
}

TEST(NodeHealthFacts, OnlyTheNodesProblemsMoveThePod) {
  NodeFacts facts = healthy();
  facts.output_free = 0;
  facts.scratch_free = 0;
  facts.clock_ahead = 100;
  const std::string why = unfit_because(judge_node(facts, kGpuNeeds));
  EXPECT_THAT(why, HasSubstr("own files"));
  EXPECT_THAT(why, HasSubstr("; the node's clock"));
  EXPECT_THAT(why, testing::Not(HasSubstr("output directory")));
}

}  // namespace
}  // namespace dsj::agent

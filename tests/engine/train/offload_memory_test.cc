// What is in memory with offload, by the ledger: the keys that bound it do.
#include <gtest/gtest.h>

#include "job/plan/zero_plan.h"
#include "tests/engine/train/offload_support.h"

namespace dsj::train {
namespace {

using memory::Class;

struct OffloadBytes {
  int64_t optimizer = 0, parameters = 0, host = 0;  ///< bytes that live between steps
  int64_t host_peak = 0, optimizer_peak = 0;
  int64_t shard = 0;    ///< elements that rank 0 owns
  int64_t staging = 0;  ///< bytes the plan allows
};

OffloadBytes measure_offload(const SmallRun& run) {
  OffloadBytes out;
  measure_a_step(run, [&](Rank& rank, const memory::Ledger& ledger) {
    out = {.optimizer = ledger.live(Class::Optimizer),
           .parameters = ledger.live(Class::Parameters),
           .host = ledger.live(Class::Host),
           .host_peak = ledger.peak(Class::Host),
           .optimizer_peak = ledger.peak(Class::Optimizer)};
    for (const auto& flat : rank.state.plan().flats) out.shard += flat.shard_numel();
    out.staging = plan::plan_offload(rank.state.plan(), run.config, run.world).staging_bytes();
  });
  return out;
}

SmallRun bounded(OffloadDevice optimizer, OffloadDevice param, const std::string& root,
                 bool bf16 = true) {
  SmallRun run = offloaded(3, optimizer, param, root);
  run.config.zero.param_persistence_threshold = 0;  // every element is sharded
  if (bf16) make_bf16(run);
  return run;
}

TEST(OffloadMemory, HostTakesTheState) {
  const OffloadBytes none = measure_offload(bounded(OffloadDevice::None, OffloadDevice::None, ""));
  EXPECT_EQ(none.optimizer, 12 * none.shard);
  EXPECT_EQ(none.parameters, 2 * none.shard);
  EXPECT_EQ(none.host, 0);
  const OffloadBytes optimizer =
      measure_offload(bounded(OffloadDevice::Cpu, OffloadDevice::None, ""));
  EXPECT_EQ(optimizer.optimizer, 0);
  EXPECT_EQ(optimizer.host, 12 * none.shard);
  EXPECT_EQ(optimizer.parameters, 2 * none.shard);
  const OffloadBytes both = measure_offload(bounded(OffloadDevice::Cpu, OffloadDevice::Cpu, ""));
  EXPECT_EQ(both.host, 14 * none.shard);
  EXPECT_EQ(both.optimizer + both.parameters, 0);
}

TEST(OffloadMemory, InFp32TheShardIsTheMasterAndGoesWithTheParameters) {
  const OffloadBytes optimizer =
      measure_offload(bounded(OffloadDevice::Cpu, OffloadDevice::None, "", false));
  EXPECT_EQ(optimizer.host, 8 * optimizer.shard) << "the moments";
  EXPECT_EQ(optimizer.optimizer, 4 * optimizer.shard) << "what gathers read";
  const OffloadBytes both =
      measure_offload(bounded(OffloadDevice::Cpu, OffloadDevice::Cpu, "", false));
  EXPECT_EQ(both.host, 12 * both.shard);
}

TEST(OffloadMemory, NvmeHoldsOnlyTheBuffers) {
  const ScratchRoot root;
  int64_t before = 0;
  for (const auto& [sub_group, buffers] :
       {std::pair{2048, 4}, std::pair{2048, 6}, std::pair{4096, 6}}) {
    SmallRun run = bounded(OffloadDevice::Nvme, OffloadDevice::None, root.path());
    run.config.offload.sub_group_size = sub_group;
    run.config.offload.optimizer.buffer_count = buffers;
    run.config.offload.optimizer.pipeline_read = run.config.offload.optimizer.pipeline_write =
        false;
    const OffloadBytes m = measure_offload(run);
    EXPECT_EQ(m.optimizer_peak, 0) << "master and moments are in the file";
    EXPECT_LE(m.host_peak, int64_t{4} * sub_group * buffers + 4096) << "and their alignment";
    EXPECT_LT(m.host_peak, 12 * m.shard);
    EXPECT_GT(m.host_peak, before) << "larger buffers are used";
    before = m.host_peak;
  }
}

TEST(OffloadMemory, NvmeForEverythingHoldsOnlyTheBuffers) {
  const ScratchRoot root;
  const OffloadBytes m =
      measure_offload(bounded(OffloadDevice::Nvme, OffloadDevice::Nvme, root.path()));
  EXPECT_EQ(m.optimizer + m.parameters, 0);
  EXPECT_EQ(m.host_peak, m.staging);
  EXPECT_LT(m.host_peak, 14 * m.shard);
}

TEST(OffloadMemory, RatioSharesTheState) {
  SmallRun run = bounded(OffloadDevice::Cpu, OffloadDevice::None, "");
  run.config.offload.optimizer.ratio = 0.25;
  const OffloadBytes m = measure_offload(run);
  EXPECT_EQ(m.host + m.optimizer, 12 * m.shard);
  EXPECT_NEAR(static_cast<double>(m.host), 3.0 * static_cast<double>(m.shard), 12 * 32 * 8);
}

TEST(OffloadMemory, ParameterBuffersBoundTheStaging) {
  const ScratchRoot root;
  int64_t before = 0;
  for (const auto& [size, count] : {std::pair{2048, 2}, std::pair{2048, 5}, std::pair{4096, 5}}) {
    SmallRun run = bounded(OffloadDevice::None, OffloadDevice::Nvme, root.path());
    run.config.offload.param.buffer_size = size;
    run.config.offload.param.buffer_count = count;
    const OffloadBytes m = measure_offload(run);
    EXPECT_EQ(m.parameters, 0);
    EXPECT_LE(m.host_peak, int64_t{2} * size * count + count * 4096) << "and their alignment";
    EXPECT_GT(m.host_peak, before);
    before = m.host_peak;
  }
}

TEST(OffloadMemory, MaxInCpuKeepsTheFirstElements) {
  const ScratchRoot root;
  SmallRun run = bounded(OffloadDevice::None, OffloadDevice::Nvme, root.path());
  const OffloadBytes none = measure_offload(run);
  run.config.offload.param.max_in_cpu = 8192;
  const OffloadBytes some = measure_offload(run);
  EXPECT_EQ(some.host - none.host, 2 * 8192);
  run.config.offload.param.max_in_cpu = 1'000'000'000;
  const OffloadBytes all = measure_offload(run);
  EXPECT_EQ(all.host, 2 * all.shard) << "nothing is left for the file, and it needs no buffers";
}

}  // namespace
}  // namespace dsj::train

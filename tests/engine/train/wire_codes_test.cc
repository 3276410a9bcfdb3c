// ZeRO++'s codes in whole steps: the numbers are those of a plain run whose weights were coded by a slow
// twin, the bytes are the plan's, and training goes on as without codes.
#include <gtest/gtest.h>

#include "job/plan/memory_model.h"
#include "job/wire_blocks.h"
#include "tests/engine/support/coded.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

using dsconfig::Precision;
using memory::Class;

bool is_matrix(const Rank& rank, const std::string& name) {
  for (const auto& unit : rank.state.units())
    for (const auto& parameter : unit.parameters)
      if (parameter.name == name) return parameter.shape.size() > 1;
  ADD_FAILURE() << name;
  return false;
}

/// The losses and norms of a run; before its first step the masters of matrices become what their codes
/// say. Every rank must have them whole.
RunResult run_with_coded_masters(const SmallRun& run) {
  RunResult result;
  testing_support::run_ranks(run.world, [&](comm::Collectives& group, memory::Ledger&) {
    Rank rank(run, group);
    rank.load(run.model);
    for (size_t f = 0; f < rank.state.plan().flats.size(); ++f) {
      zero::Flat& flat = rank.state.flat(static_cast<int>(f));
      ASSERT_TRUE(flat.load_state(false, [&](int, const zero::Flat::HostRange& range) {
        if (!is_matrix(rank, range.parameter)) return Status{};
        EXPECT_EQ(range.offset, 0) << range.parameter;
        for (float& value : range.data)
          value = run.config.precision == Precision::Bf16 ? float(at::BFloat16(value)) : value;
        testing_support::code(range.data, 8);
        return Status{};
      }));
      flat.publish();
    }
    for (int64_t step = 0; step < run.steps; ++step) {
      const auto done = rank.step(step);
      if (group.rank() != 0) continue;
      result.losses.push_back(done.loss);
      result.norms.push_back(done.grad_norm);
    }
  });
  return result;
}

SmallRun coded_run(int world, bool weights, bool gradients) {
  SmallRun run{.world = world, .config = small_config(3, 1, 2)};
  run.config.zero.param_persistence_threshold = 0;
  run.config.zero.quantized_weights = weights;
  run.config.zero.quantized_gradients = gradients;
  return run;
}

void expect_equal_steps(const RunResult& got, const RunResult& want) {
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.norms, want.norms);
}

// The first step's loss is a function of the coded weights alone. What is updated is the exact master,
// so later steps differ from the twin's.
TEST(WireCodes, WeightsAreTheirNearestCodes) {
  for (const int world : {2, 3}) {
    for (const auto type : {Precision::Fp32, Precision::Bf16}) {
      SCOPED_TRACE(std::to_string(world) + (type == Precision::Bf16 ? " ranks, bf16" : " ranks"));
      SmallRun run = coded_run(world, true, false), twin{.world = world};
      run.steps = twin.steps = 1;
      run.config.precision = type;
      twin.config = small_config(0, 1, 2);
      twin.config.precision = type;
      const RunResult got = run_small(run), want = run_with_coded_masters(twin);
      EXPECT_EQ(got.losses, want.losses);
      // Stage 3 sums gradients over ranks in the compute type.
      EXPECT_NEAR(got.norms[0], want.norms[0],
                  (type == Precision::Bf16 ? 1e-3 : 1e-5) * want.norms[0]);
      run.config.zero.quantized_weights = false;
      EXPECT_GT(apart(run_small(run), want), 1e-5) << "codes are not exact";
    }
  }
}

/// hpZ keeps what the codes said: the second gather has the first one's bits.
TEST(WireCodes, HpzHasTheSameBits) {
  for (const bool offload : {false, true}) {
    SmallRun run = coded_run(4, true, false);
    run.config.zero.max_reuse_distance = 0;
    if (offload) run.config.offload.param.device = dsconfig::OffloadDevice::Cpu;
    const RunResult all = run_small(run);
    run.config.zero.hpz_partition_size = 2;
    expect_equal_steps(run_small(run), all);
  }
}

/// With one rank nothing travels.
TEST(WireCodes, OneRankIsExact) {
  SmallRun plain{.world = 1, .config = small_config(3, 1, 2)};
  expect_equal_steps(run_small(coded_run(1, true, true)), run_small(plain));
}

/// Training goes the way of the run without codes, as DeepSpeed's users see it.
TEST(WireCodes, LossesFollowStageThree) {
  SmallRun plain{.world = 4, .steps = 8, .config = small_config(3, 1, 2)};
  const RunResult want = run_small(plain);
  for (const int64_t near : {1, 2}) {
    SmallRun run = coded_run(4, true, true);
    run.steps = plain.steps;
    run.config.zero.hpz_partition_size = near;
    const RunResult got = run_small(run);
    EXPECT_LT(apart(got, want), 0.03);
  }
}

struct CodedStep {
  plan::MemoryModel planned;
  comm::Counters all, near, rail;
  int64_t parameters = 0, gradients = 0, optimizer = 0, buckets = 0;
};

CodedStep measure_codes(const SmallRun& run) {
  CodedStep out;
  measure_a_step(run, [&](Rank& rank, const memory::Ledger& ledger) {
    const zero::Groups& groups = rank.groups.groups();
    out.all = rank.groups.counters();
    if (groups.near) out.near = groups.near->counters();
    if (groups.rail) out.rail = groups.rail->counters();
    out.parameters = ledger.peak(Class::Parameters);
    out.gradients = ledger.peak(Class::Gradients);
    out.optimizer = ledger.peak(Class::Optimizer);
    out.buckets = ledger.peak(Class::Buckets);
    out.planned = plan::memory_model({.model = rank.model,
                                      .config = rank.config,
                                      .world = run.world,
                                      .tokens_per_row = 24,
                                      .recompute = run.recompute,
                                      .lora = resolved_lora(run)});
  });
  return out;
}

void expect_planned_codes(const CodedStep& m) {
  EXPECT_EQ(m.parameters, m.planned.bytes.parameters);
  EXPECT_EQ(m.optimizer, m.planned.bytes.optimizer);
  EXPECT_LE(m.gradients, m.planned.bytes.gradients);
  EXPECT_EQ(m.all.of(comm::Traffic::Gradients).bytes, m.planned.wire.gradient_bytes);
  EXPECT_EQ(m.all.of(comm::Traffic::Parameters).bytes, m.planned.wire.parameter_bytes);
}

TEST(WireCodes, GradientsCostWhatThePlanSays) {
  for (const bool overlap : {false, true}) {
    for (const bool weights : {false, true}) {
      for (const int64_t near : {1, 2, 3}) {
        SmallRun run = coded_run(6, weights, true);
        run.config.zero.hpz_partition_size = near;
        run.config.zero.overlap_comm = overlap;
        run.config.zero.max_reuse_distance = 0;
        SCOPED_TRACE("groups of " + std::to_string(near) + (weights ? ", weights too" : "") +
                     (overlap ? ", overlap" : ""));
        const CodedStep m = measure_codes(run);
        expect_planned_codes(m);
        EXPECT_LE(m.buckets, m.planned.bytes.buckets);
        EXPECT_EQ(m.near.of(comm::Traffic::Gradients).bytes, m.planned.wire.near_gradient_bytes);
        EXPECT_EQ(m.rail.of(comm::Traffic::Gradients).bytes,
                  m.planned.wire.gradient_bytes_over_groups);
        EXPECT_EQ(m.rail.of(comm::Traffic::Gradients).bytes > 0, near > 1);
      }
    }
  }
}

TEST(WireCodes, AFrozenShardIsKeptAsCodes) {
  for (const int64_t near : {1, 2}) {
    SmallRun run = coded_run(4, false, false);
    run.config.zero.hpz_partition_size = near;
    run.lora = LoraArgs{.r = 4};
    run.steps = 1;
    const RunResult exact = run_small(run);
    run.config.zero.quantized_frozen_weights = true;
    const CodedStep codes = measure_codes(run);
    expect_planned_codes(codes);
    const RunResult got = run_small(run);
    EXPECT_GT(apart(got, exact), 0);
    EXPECT_LT(apart(got, exact), 0.01);
  }
}

}  // namespace
}  // namespace dsj::train

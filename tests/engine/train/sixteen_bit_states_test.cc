// Masters and optimizer states in 16 bits: rounded once per update, the same with offload and after a
// resume, as many bytes as the plan says, and DeepSpeed's recorded losses within its own spread.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "job/plan/memory_model.h"
#include "job/plan/zero_plan.h"
#include "tests/engine/support/golden_steps.h"
#include "tests/engine/train/offload_support.h"

namespace dsj::train {
namespace {

SmallRun bf16(int stage, int world = 2, bool states = true) {
  SmallRun run{.world = world, .steps = 6, .config = small_config(stage)};
  make_bf16(run);
  run.config.master_dtype = Precision::Bf16;
  if (states) run.config.state_dtype = Precision::Bf16;
  return run;
}

/// Every element of every state that the ranks own, by "state parameter".
std::map<std::string, at::Tensor> states_of(Rank& rank) {
  std::map<std::string, at::Tensor> all;
  for (size_t f = 0; f < rank.state.plan().flats.size(); ++f) {
    zero::Flat& flat = rank.state.flat(static_cast<int>(f));
    const auto seen = flat.save_state([&](int state, const zero::Flat::HostRange& range) {
      memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
      all[flat.state_name(state) + " " + range.parameter + " " + std::to_string(range.offset)] =
          at::tensor(at::ArrayRef<float>(range.data.data(), range.data.size()));
      return Status{};
    });
    EXPECT_TRUE(seen);
  }
  return all;
}

/// The states after one step from bf16 weights.
std::map<std::string, at::Tensor> after_a_step(const SmallRun& run) {
  std::map<std::string, at::Tensor> found;
  testing_support::run_ranks(run.world, [&](comm::Collectives& collectives, memory::Ledger&) {
    Rank rank(run, collectives);
    rank.load(run.model);
    round_masters(rank, [](const std::string&) { return true; });
    rank.step(0);
    if (collectives.rank() == 0) found = states_of(rank);
  });
  return found;
}

TEST(SixteenBitStates, AreRoundedOncePerUpdate) {
  for (const int stage : {2, 3}) {
    for (const bool states : {true, false}) {
      auto wide = bf16(stage);
      wide.config.master_dtype = wide.config.state_dtype = Precision::Fp32;
      const auto exact = after_a_step(wide), found = after_a_step(bf16(stage, 2, states));
      ASSERT_EQ(found.size(), exact.size());
      for (const auto& [name, value] : exact) {
        const bool rounds = states || name.starts_with("master");
        const at::Tensor expected = rounds ? value.to(at::kBFloat16).to(at::kFloat) : value;
        EXPECT_TRUE(found.at(name).equal(expected)) << name << " at stage " << stage;
      }
    }
  }
}

TEST(SixteenBitStates, TheSameWithOffloadAndLikeTheOtherStages) {
  const ScratchRoot root;
  const auto whole = run_small(bf16(1));
  for (const int stage : {1, 2, 3}) {
    for (const auto device : {OffloadDevice::None, OffloadDevice::Cpu, OffloadDevice::Nvme}) {
      auto run = bf16(stage);
      run.config.offload =
          offloaded(stage, device, OffloadDevice::None, root.path()).config.offload;
      const auto result = run_small(run);
      for (size_t i = 0; i < whole.losses.size(); ++i)
        EXPECT_NEAR(result.losses[i], whole.losses[i], 2e-3 * whole.losses[i])
            << "stage " << stage << ", step " << i;
      run.config.offload = {};
      EXPECT_EQ(result.losses, run_small(run).losses) << "offload changes nothing";
    }
  }
}

TEST(SixteenBitStates, OtherOptimizersAndFp16) {
  using enum dsconfig::OptimizerKind;
  for (const auto kind : {Lamb, Lion, Muon, Sgd}) {
    auto run = bf16(2);
    run.config.optimizer.kind = kind;
    run.config.optimizer.momentum = 0.9;
    const auto plain = [&] {
      auto wide = run;
      wide.config.master_dtype = wide.config.state_dtype = Precision::Fp32;
      return run_small(wide);
    }();
    const auto result = run_small(run);
    for (size_t i = 0; i < plain.losses.size(); ++i)
      EXPECT_NEAR(result.losses[i], plain.losses[i], 2e-2 * plain.losses[i])
          << name_of(run.config.optimizer);
  }
  auto half = bf16(2);
  half.config.precision = half.config.grad_accum_dtype = half.config.communication_dtype =
      half.config.master_dtype = Precision::Fp16;
  half.config.state_dtype = Precision::Fp32;
  half.config.offload.optimizer.device = OffloadDevice::Cpu;
  half.config.loss_scale = {.initial = std::ldexp(1.0, 10)};
  for (const double loss : run_small(half).losses) EXPECT_TRUE(std::isfinite(loss));
}

int64_t buckets_of(const SmallRun& run) {
  int64_t peak = 0;
  testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger& ledger) {
    Rank rank(run, collectives);
    rank.load(run.model);
    rank.step(0);
    if (collectives.rank() == 0) peak = ledger.peak(memory::Class::Buckets);
  });
  return peak;
}

/// Bytes per parameter by class, as DeepSpeed's table: bf16 masters are no copy of their own here.
TEST(SixteenBitStates, ThePlanKnowsTheBytes) {
  for (const int stage : {1, 2, 3}) {
    for (const bool states : {true, false}) {
      const auto run = bf16(stage, 2, states);
      auto wide = run;
      wide.config.master_dtype = wide.config.state_dtype = Precision::Fp32;
      const int64_t elsewhere = buckets_of(wide);  // the head's products, on so small a model
      measure_ranks(run, [&](Rank& rank, const memory::Ledger& ledger) {
        const auto planned = plan::memory_model(
            {.model = rank.model, .config = rank.config, .world = 2, .tokens_per_row = 24});
        int64_t owned = 0, shards = 0;
        for (int i = 0; i < static_cast<int>(rank.state.plan().flats.size()); ++i) {
          const auto& flat = rank.state.plan().flats[static_cast<size_t>(i)];
          owned += flat.shard_numel();
          if (stage == 3 && !rank.state.plan().is_persisted(i)) shards += flat.shard_numel();
        }
        EXPECT_EQ(planned.bytes.optimizer, owned * 2 * (states ? 2 : 4) + 2 * shards);
        EXPECT_EQ(ledger.peak(memory::Class::Optimizer), planned.bytes.optimizer) << stage;
        EXPECT_EQ(ledger.peak(memory::Class::Parameters), planned.bytes.parameters) << stage;
        EXPECT_LE(ledger.peak(memory::Class::Gradients), planned.bytes.gradients) << stage;
        EXPECT_LE(ledger.peak(memory::Class::Buckets), std::max(planned.bytes.buckets, elsewhere))
            << stage;
        const auto& plan = rank.state.plan();
        EXPECT_GE(planned.bytes.buckets, plan::update_scratch(plan, rank.config, 2)) << stage;
        EXPECT_GT(plan::update_scratch(plan, rank.config, 2), 0) << stage;
      });
    }
  }
}

/// Offloaded, as the keys want it: DeepSpeed 0.19.8's own kernel made these updates
/// (tests/oracle/sixteen_bit_states_oracle.py).
TEST(SixteenBitStates, RecordedOffloadedRuns) {
  const auto oracle = testing_support::read_golden(fixture("sixteen_bit_states.oracle.json"));
  const auto rows = testing_support::read_golden(fixture("tiny-qwen2.oracle.json"))["rows"];
  ASSERT_EQ(oracle["runs"].size(), 8u);
  for (const auto& [name, record] : oracle["runs"].items()) {
    const testing_support::GoldenRun run{record, rows, fixture(record["model"])};
    const auto config = run.config();
    const std::string form = name.substr(0, name.find("_z"));
    const auto masters = form.starts_with("fp16") ? Precision::Fp16 : Precision::Bf16;
    EXPECT_EQ(config.master_dtype, masters) << name;
    EXPECT_EQ(config.state_dtype, form.ends_with("_states") ? masters : Precision::Fp32) << name;
    const double own = oracle["spread"][name];
    EXPECT_LE(own, masters == Precision::Fp16 ? 3e-4 : 2e-3)
        << name << ": a record that says nothing";
    const double most = apart(testing_support::repeat(run, config), run);
    std::cout << "golden: " << name << " " << most << ", itself " << own << std::endl;
    EXPECT_LE(most, testing_support::kSpreads * own) << name;
  }
}

/// torch's AdamW on bf16, which recorded them, rounds after every operation: DeepSpeed's own kernels,
/// and ours, round once per tensor. The tolerance is the one that its README derives.
TEST(SixteenBitStates, RecordedRuns) {
  const std::filesystem::path folder = "precision_0.19.8";
  if (!std::filesystem::exists(testing_support::golden_directory() / folder))
    GTEST_SKIP() << "skipped: " << testing_support::golden_directory() / folder << " is not there";
  for (const int stage : {1, 2, 3}) {
    const auto run = testing_support::golden_run(
        folder / ("qwen2_bf16master_states_z" + std::to_string(stage) + "_w2.json"));
    const auto config = run.config();
    ASSERT_EQ(config.state_dtype, Precision::Bf16);
    const double most = apart(testing_support::repeat(run, config), run);
    std::cout << "golden: bf16 masters and states, stage " << stage << " " << most << std::endl;
    EXPECT_LE(most, 1e-2);
  }
}

}  // namespace
}  // namespace dsj::train

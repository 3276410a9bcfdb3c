// torch_autocast in whole runs: every product reads 16-bit factors and nothing else does; parameters
// stay fp32 at every stage; what travels and lives is what the plan says; DeepSpeed's recorded
// losses.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <map>

#include "engine/models/ops/gemm.h"
#include "job/plan/autocast_plan.h"
#include "job/plan/memory_model.h"
#include "job/plan/zero_plan.h"
#include "tests/engine/support/golden_steps.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

using dsconfig::Precision;
using memory::Class;
using nlohmann::json;

constexpr const char* kModels[] = {
    "tiny-qwen2", "tiny-qwen3",    "tiny-llama",  "tiny-gpt2",       "tiny-gemma3",    "tiny-olmo2",
    "tiny-phi",   "tiny-gpt-neox", "tiny-gemma4", "tiny-gemma4-moe", "tiny-gemma4-e4b"};

SmallRun autocast(int stage, int world = 2, Precision type = Precision::Bf16,
                  int64_t accumulation = 1) {
  SmallRun run{.world = world, .config = small_config(stage, 2, accumulation)};
  run.config.autocast = {type, {"torch.nn.Linear"}};
  if (type == Precision::Fp16)
    run.config.loss_scale = {.initial = 4096, .window = 2000, .hysteresis = 1, .like_torch = true};
  return run;
}

SmallRun plain(SmallRun run) {
  run.config.autocast = {};
  return run;
}

/// `rounded`: with the masters of what products read, or of everything else, in their bf16.
double first_loss(const SmallRun& run, std::optional<bool> rounded) {
  double loss = 0;
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    Rank rank(run, collectives);
    rank.load(run.model);
    if (rounded)
      round_masters(rank, [&](const std::string& parameter) {
        return plan::enters_products(parameter) == *rounded;
      });
    loss = rank.step(0).loss;
  });
  return loss;
}

/// A product reads bf16: rounding its weights beforehand changes nothing, to the bit. What is not a
/// product's factor is read in fp32: rounding that shows.
TEST(Autocast, ProductsRunInTheType) {
  for (const char* model : kModels) {
    auto run = autocast(0, 1);
    run.model = model;
    const double loss = first_loss(run, std::nullopt);
    EXPECT_NE(loss, first_loss(plain(run), std::nullopt)) << model;
    EXPECT_EQ(loss, first_loss(run, true)) << model;
    EXPECT_NE(loss, first_loss(run, false)) << model << ": norms and embeddings are fp32";
  }
}

/// DeepSpeed's recorded runs are 8e-4 from fp32 after 20 steps, its stages 6e-4 from each other.
TEST(Autocast, EveryStageFollowsFp32) {
  for (const char* model : kModels) {
    auto run = autocast(0, 2, Precision::Bf16, 2);
    run.model = model;
    const auto wide = run_small(plain(run)).losses;
    // After ten steps torch's own autocast is 4e-2 from fp32 on this model, and 6e-4 on tiny-qwen2.
    const double most = model == std::string_view("tiny-gemma4-e4b") ? 8e-3 : 3e-3;
    for (int stage = 0; stage <= 3; ++stage) {
      run.config.zero.stage = stage;
      const auto losses = run_small(run).losses;
      EXPECT_LE(apart(losses, wide), most) << model << " at stage " << stage;
      EXPECT_NE(losses, wide) << model << " at stage " << stage;
    }
    auto again = run;
    again.recompute = true;
    EXPECT_EQ(run_small(again).losses, run_small(run).losses) << model << ", recomputed";
  }
}

TEST(Autocast, WithAdaptersPiecesAndOffload) {
  auto lora = autocast(3);
  lora.lora = LoraArgs{.r = 4, .alpha = 8};
  EXPECT_LE(apart(run_small(lora).losses, run_small(plain(lora)).losses), 3e-3);
  auto pieces = autocast(2);
  pieces.recompute = true;
  const auto whole = run_small(pieces).losses;
  pieces.pieces = {.piece = 8};
  EXPECT_LE(apart(run_small(pieces).losses, whole), 1e-3);
  auto offloaded = autocast(3);
  const auto here = run_small(offloaded).losses;
  offloaded.config.offload.optimizer.device = dsconfig::OffloadDevice::Cpu;
  offloaded.config.offload.param.device = dsconfig::OffloadDevice::Cpu;
  offloaded.config.offload.param.buffer_count = 3;
  offloaded.config.offload.param.buffer_size = 1 << 20;
  EXPECT_EQ(run_small(offloaded).losses, here) << "offload changes nothing";
}

/// The exported weights are the masters, though stage 3 gathers them in bf16 for a step.
TEST(Autocast, WeightsStayFp32) {
  for (const int stage : {0, 3}) {
    auto run = autocast(stage);
    run.steps = 0;
    const auto kept = run_small(run).weights, expected = run_small(plain(run)).weights;
    ASSERT_EQ(kept.size(), expected.size());
    for (const auto& [name, value] : expected) EXPECT_TRUE(kept.at(name).equal(value)) << name;
  }
}

TEST(Autocast, Fp16IsScaledAndSkipsAnOverflow) {
  for (const int stage : {0, 2}) {
    auto run = autocast(stage, 2, Precision::Fp16);
    EXPECT_LE(apart(run_small(run).losses, run_small(plain(run)).losses), 3e-3) << stage;
    run.config.loss_scale.initial = std::ldexp(1.0, 40);
    testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger&) {
      Rank rank(run, collectives);
      rank.load(run.model);
      const auto first = rank.step(0), second = rank.step(1);
      if (collectives.rank() != 0) return;
      EXPECT_TRUE(first.skipped) << stage;
      EXPECT_FALSE(first.bad_gradient.empty());
      EXPECT_EQ(second.loss_scale, first.loss_scale / 2) << "at once: there is no hysteresis";
    });
  }
}

struct AutocastStep {
  plan::MemoryModel planned;
  comm::Counters counters;
  int64_t parameters = 0, gradients = 0, optimizer = 0, buckets = 0, activations = 0;
};

AutocastStep measure_autocast(const SmallRun& run) {
  AutocastStep out;
  measure_a_step(run, [&](Rank& rank, const memory::Ledger& ledger) {
    out.counters = rank.collectives.counters();
    out.parameters = ledger.peak(Class::Parameters);
    out.gradients = ledger.peak(Class::Gradients);
    out.optimizer = ledger.peak(Class::Optimizer);
    out.buckets = ledger.peak(Class::Buckets);
    out.activations = ledger.peak(Class::Activations);
    out.planned = plan::memory_model(
        {.model = rank.model,
         .config = rank.config,
         .world = run.world,
         .tokens_per_row = 24,
         .recompute = run.recompute,
         .native_products = models::gemm::native(at::empty(
             {0}, run.config.autocast.products == Precision::Fp16 ? at::kHalf : at::kBFloat16)),
         .pieces = run.pieces});
  });
  return out;
}

AutocastStep expect_planned(const SmallRun& run) {
  const auto m = measure_autocast(run);
  const auto& bytes = m.planned.bytes;
  const std::string where = run.model + " at stage " + std::to_string(run.config.zero.stage) +
                            (run.recompute ? ", recomputed" : "");
  EXPECT_EQ(m.parameters, bytes.parameters) << where;
  EXPECT_EQ(m.optimizer, bytes.optimizer) << where;
  EXPECT_LE(m.gradients, bytes.gradients) << where;
  EXPECT_LE(m.buckets, bytes.buckets) << where;
  EXPECT_LE(m.activations, bytes.activations) << where;
  EXPECT_EQ(m.counters.of(comm::Traffic::Gradients).bytes, m.planned.wire.gradient_bytes) << where;
  EXPECT_EQ(m.counters.of(comm::Traffic::Parameters).bytes, m.planned.wire.parameter_bytes)
      << where;
  return m;
}

TEST(Autocast, ThePlanKnowsTheBytes) {
  for (const char* model : kModels) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const bool recompute : {false, true}) {
        auto run = autocast(stage, 2, Precision::Bf16, 2);
        run.model = model;
        run.recompute = recompute;
        expect_planned(run);
      }
    }
  }
}

/// fp16 rounds gradients a tile at a time. The head's logits and a layer's MLP come in pieces, whose
/// sums lie beside what earlier micro-steps left: the second micro-step's, where gradients stay whole.
TEST(Autocast, ThePlanKnowsTheBytesOfRoundedGradients) {
  for (const char* model : {"tiny-qwen2", "tiny-llama", "tiny-gpt2", "tiny-gemma4-e4b"}) {
    for (const int stage : {0, 1, 2, 3}) {
      auto run = autocast(stage, 2, Precision::Fp16, 2);
      run.model = model;
      run.config.autocast.safe_modules.emplace_back("transformers.pytorch_utils.Conv1D");
      expect_planned(run);
      run.recompute = true;
      run.pieces = {.piece = 8};
      const auto measured = expect_planned(run);
      const auto shape = fixture_model(model);
      const bool gpt2 = shape.block == layout::Block::Gpt2;
      const int64_t head = shape.vocab_size * shape.hidden_size,
                    mlp = (gpt2 ? 2 : 3) * shape.hidden_size * shape.intermediate_size;
      EXPECT_GE(measured.buckets, stage < 2 ? 4 * std::max(head, mlp) : 0) << model;
    }
  }
}

/// Half the bytes for what Linear holds, at stage 3 in gathers too; the others as in fp32.
TEST(Autocast, SafeModulesTravelInTheirType) {
  const auto units = layout::units_of(fixture_model("tiny-qwen2"));
  for (const int stage : {0, 1, 2, 3}) {
    auto run = autocast(stage);
    const auto safe = measure_autocast(run);
    run.config.autocast.safe_modules = {};
    const auto none = measure_autocast(run), fp32 = measure_autocast(plain(run));
    const auto bytes = [](const AutocastStep& m, comm::Traffic traffic) {
      return m.counters.of(traffic).bytes;
    };
    using enum comm::Traffic;
    EXPECT_EQ(bytes(none, Gradients), bytes(fp32, Gradients)) << stage;
    EXPECT_EQ(bytes(none, Parameters), bytes(fp32, Parameters)) << stage;
    if (stage == 0) {
      EXPECT_EQ(bytes(safe, Gradients), bytes(fp32, Gradients)) << "as DeepSpeed without ZeRO";
      continue;
    }
    // Qwen2's embedding of 256 x 32 and its norms travel in fp32: a fifth of all.
    const auto share = [&](comm::Traffic traffic) {
      return static_cast<double>(bytes(safe, traffic)) / static_cast<double>(bytes(fp32, traffic));
    };
    EXPECT_GT(share(Gradients), 0.5) << stage;
    EXPECT_LT(share(Gradients), 0.7) << stage;
    if (stage == 3) {
      EXPECT_LT(share(Parameters), 0.7);
    } else {
      EXPECT_NEAR(share(Parameters), 1, 0.02) << "updated parameters are fp32";
    }
  }
}

/// DeepSpeed 0.19.8 on two ranks. The tolerance is the one that the recording's README derives from
/// DeepSpeed's own spread.
TEST(Autocast, RecordedRuns) {
  const std::filesystem::path folder = "precision_0.19.8";
  if (!std::filesystem::exists(testing_support::golden_directory() / folder))
    GTEST_SKIP() << "skipped: " << testing_support::golden_directory() / folder << " is not there";
  for (const int stage : {0, 2, 3}) {
    const auto run = testing_support::golden_run(
        folder / ("qwen2_autocast_bf16_z" + std::to_string(stage) + "_w2.json"));
    const auto config = run.config();
    ASSERT_TRUE(config.autocast.on());
    const double most = apart(testing_support::repeat(run, config), run);
    std::cout << "golden: autocast bf16, stage " << stage << " " << most << std::endl;
    EXPECT_LE(most, 3e-3);
  }
}

/// apex's O0 computes in fp32, so DeepSpeed's fp32 record is its record.
TEST(Autocast, AmpO0IsTheRecordedFp32Run) {
  const std::filesystem::path path = "deepspeed_0.19.8/qwen2_fp32_z0_w2.json";
  if (!std::filesystem::exists(testing_support::golden_directory() / path))
    GTEST_SKIP() << "skipped: " << testing_support::golden_directory() / path << " is not there";
  auto run = testing_support::golden_run(path);
  const auto plain = testing_support::repeat(run, run.config());
  run.record["ds_config"]["amp"] = {{"enabled", true}, {"opt_level", "O0"}};
  const auto steps = testing_support::repeat(run, run.config());
  EXPECT_LE(apart(steps, run), 1e-5);
  ASSERT_EQ(steps.size(), plain.size());
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].loss, plain[i].loss) << i;
}

/// torch_autocast and amp have no keys for the first scale and its growth: the recorder set them,
/// and so does this.
dsconfig::ResolvedConfig config_of(const testing_support::GoldenRun& run) {
  auto config = run.config();
  if (run.record.contains("first_scale")) config.loss_scale.initial = run.record["first_scale"];
  if (run.record.contains("growth")) config.loss_scale.window = run.record["growth"];
  return config;
}

/// Losses within the tolerance; the scale and what is skipped are equal at every step.
void expect_same_steps(const testing_support::GoldenRun& run,
                       const dsconfig::ResolvedConfig& config, double tolerance, double spread,
                       const std::string& where) {
  const auto steps = testing_support::repeat(run, config);
  const double most = apart(steps, run);
  std::cout << "golden: " << where << " " << most << ", itself " << spread << std::endl;
  EXPECT_LE(most, tolerance) << where;
  for (size_t i = 0; i < steps.size(); ++i) {
    const json& recorded = run.record["steps"][i];
    EXPECT_EQ(steps[i].loss_scale, recorded["loss_scale"].get<double>()) << where << ", step " << i;
    EXPECT_EQ(steps[i].skipped, recorded["skipped"] != 0) << where << ", step " << i;
  }
}

/// fp16 has three bits more than bf16, so an eighth of its tolerance: twice what the references
/// themselves move by when only rounding changes.
constexpr double kFp16Tolerance = 3e-3 / 8;

/// In fp16: DeepSpeed 0.19.8's torch_autocast, and what apex's O1 means in plain PyTorch
/// (tests/oracle/autocast_oracle.py).
TEST(Autocast, RecordedFp16Runs) {
  const json oracle = testing_support::read_golden(fixture("autocast.oracle.json"));
  const json rows = testing_support::read_golden(fixture("tiny-qwen2.oracle.json"))["rows"];
  for (const char* name : {"fp16_z0", "fp16_z2", "fp16_z3", "amp_o1"}) {
    const json& record = oracle["runs"].at(name);
    const testing_support::GoldenRun run{record, rows, fixture(record["model"])};
    const auto config = config_of(run);
    ASSERT_EQ(config.autocast.products, Precision::Fp16) << name;
    const double spread = oracle["spread"][name]["moved"];
    EXPECT_LE(spread, kFp16Tolerance) << name << ": a record that says nothing";
    expect_same_steps(run, config, kFp16Tolerance, spread, name);
  }
}

/// Runs that begin with a scale so high that steps are skipped, and come back to it: autocast, which
/// rounds each weight's gradient to fp16, fp16.enabled, amp O1 and O2. Each stage skips the recorded
/// steps. DeepSpeed's autocast is recorded at stage 0 alone: at the others its scale never falls.
TEST(Autocast, RecordedOverflows) {
  const json oracle = testing_support::read_golden(fixture("autocast.oracle.json"));
  const json rows = testing_support::read_golden(fixture("tiny-qwen2.oracle.json"))["rows"];
  const std::map<std::string, std::vector<int>> stages = {
      {"fp16_z0_overflow", {0, 1, 2, 3}}, {"enabled_z1_overflow", {0, 1}},
      {"enabled_z2_overflow", {2}},       {"enabled_z3_overflow", {3}},
      {"amp_o1_overflow", {0}},           {"amp_o2_overflow", {0}}};
  for (const auto& [name, repeated] : stages) {
    const json& record = oracle["runs"].at(name);
    const testing_support::GoldenRun run{record, rows, fixture(record["model"])};
    auto config = config_of(run);
    ASSERT_EQ(product_type(config), Precision::Fp16) << name;
    int skipped = 0, grown = 0;
    for (size_t i = 1; i < record["steps"].size(); ++i) {
      skipped += record["steps"][i - 1]["skipped"] != 0;
      grown += record["steps"][i]["loss_scale"] > record["steps"][i - 1]["loss_scale"];
    }
    EXPECT_GE(skipped, 3) << name << ": a record that says nothing";
    EXPECT_GE(grown, 2) << name;
    for (const int stage : repeated) {
      config.zero.stage = stage;
      expect_same_steps(run, config, kFp16Tolerance, oracle["spread"][name]["moved"],
                        name + " at stage " + std::to_string(stage));
    }
  }
  ASSERT_EQ(oracle["stuck"].size(), 2u);
  for (const auto& [name, steps] : oracle["stuck"].items())
    for (const json& step : steps)
      EXPECT_TRUE(step["skipped"] != 0 && step["loss_scale"] == steps[0]["loss_scale"]) << name;
}

}  // namespace
}  // namespace dsj::train

// Rows of unequal lengths in one micro-batch: the losses are those of the padded batch of Hugging
// Face's collator, and of the rows one by one, at every stage and in every kind of run. And what a
// micro-batch holds follows its tokens, not its longest row.
#include <gtest/gtest.h>

#include <functional>

#include "tests/engine/train/offload_support.h"
#include "tests/engine/train/plain_run.h"

namespace dsj::train {
namespace {

constexpr int64_t kSteps = 50, kRows = 3;
/// Far above the rounding of a gradient. With 1e-8 Adam turns a gradient that is nothing but rounding
/// into a whole step, and so the order of a product's sum, which differs between one row and three,
/// into another run.
constexpr double kEps = 1e-3;

struct Row {
  std::vector<int64_t> ids, labels;
};

/// Lengths from 3 to `longest`. Targets: all, every third row with its beginning masked; or the
/// last two tokens of each row alone.
Row row_of(int64_t index, int64_t longest, int64_t vocab, bool two_targets) {
  Row row;
  row.ids = row.labels = row_ids(index, 3 + index * 7919 % (longest - 2), vocab);
  const auto length = std::ssize(row.ids);
  const int64_t masked = two_targets ? length - 2 : index % 3 == 0 ? length / 3 : 0;
  std::fill(row.labels.begin(), row.labels.begin() + masked, -100);
  return row;
}

using BatchOf = std::function<models::MicroBatch(int64_t step, int64_t micro_step, int rank)>;

models::MicroBatch batch_of(const std::vector<Row>& rows) {
  std::vector<std::vector<int64_t>> ids, labels;
  for (const Row& row : rows) ids.push_back(row.ids), labels.push_back(row.labels);
  return testing_support::ragged(ids, labels);
}

RunResult run_batches(const SmallRun& run, const BatchOf& batch, int64_t steps = kSteps) {
  RunResult result;
  testing_support::run_ranks(run.world, [&](comm::Collectives& collectives, memory::Ledger&) {
    Rank rank(run, collectives);
    rank.load(run.model);
    for (int64_t step = 0; step < steps; ++step) {
      std::vector<models::MicroBatch> batches;
      for (int64_t i = 0; i < run.config.gradient_accumulation_steps; ++i)
        batches.push_back(batch(step, i, collectives.rank()));
      const auto done = rank.stepper.run(
          {.micro_batches = batches, .step = step, .rates = {.lr = run.config.optimizer.lr}});
      if (collectives.rank() != 0) continue;
      result.losses.push_back(done.loss);
      result.norms.push_back(done.grad_norm);
    }
  });
  return result;
}

struct RowsCase {
  const char* name;
  const char* model = "tiny-qwen2";
  int stage = 0;
  bool recompute = false, lora = false;
  OffloadDevice offload = OffloadDevice::None;
  int64_t longest = 32;
  int64_t steps = kSteps;
};

class Rows : public testing::TestWithParam<RowsCase> {};

/// Rows with two targets each: the mean over a micro-batch of three is the mean of three
/// micro-batches of one. A row alone was never padded.
TEST_P(Rows, TogetherTrainAsOneByOne) {
  const RowsCase& c = GetParam();
  const ScratchRoot scratch;
  const int64_t vocab = fixture_model(c.model).vocab_size;
  const auto run_of = [&](int64_t micro, int64_t accumulation) {
    SmallRun run{.model = c.model, .recompute = c.recompute};
    if (c.offload != OffloadDevice::None)
      run = offloaded(c.stage, c.offload, c.stage == 3 ? c.offload : OffloadDevice::None,
                      scratch.path());
    const auto offload = run.config.offload;
    run.model = c.model;
    run.config = small_config(c.stage, micro, accumulation);
    run.config.offload = offload;
    run.config.optimizer.eps = kEps;
    if (c.lora) run.lora = LoraArgs{.r = 4, .alpha = 8};
    return run;
  };
  const auto row = [&](int64_t step, int rank, int64_t i) {
    return row_of((step * 2 + rank) * kRows + i, c.longest, vocab, /*two_targets=*/true);
  };
  const auto together = run_batches(
      run_of(kRows, 1),
      [&](int64_t step, int64_t, int rank) {
        return batch_of({row(step, rank, 0), row(step, rank, 1), row(step, rank, 2)});
      },
      c.steps);
  const auto alone = run_batches(
      run_of(1, kRows),
      [&](int64_t step, int64_t i, int rank) { return batch_of({row(step, rank, i)}); }, c.steps);
  expect_near_steps(together, alone, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Rows,
    testing::Values(
        RowsCase{"stage0"}, RowsCase{.name = "stage1", .stage = 1},
        RowsCase{.name = "stage2", .stage = 2}, RowsCase{.name = "stage3", .stage = 3},
        RowsCase{.name = "recompute", .stage = 2, .recompute = true},
        RowsCase{.name = "recompute_stage3", .stage = 3, .recompute = true},
        RowsCase{.name = "lora", .stage = 2, .lora = true},
        RowsCase{.name = "lora_stage3", .stage = 3, .recompute = true, .lora = true},
        RowsCase{.name = "offload_cpu", .stage = 2, .offload = OffloadDevice::Cpu},
        RowsCase{.name = "offload_nvme", .stage = 3, .offload = OffloadDevice::Nvme},
        RowsCase{.name = "tied", .model = "tiny-qwen2-tied", .stage = 3},
        RowsCase{.name = "windows", .model = "tiny-mistral", .stage = 2},
        RowsCase{.name = "windows_of_some_layers", .model = "tiny-qwen3", .stage = 3},
        RowsCase{.name = "learned_positions", .model = "tiny-gpt2", .stage = 2, .longest = 24},
        RowsCase{.name = "rope_llama3", .model = "tiny-llama", .stage = 1},
        RowsCase{.name = "caps", .model = "tiny-gemma2", .stage = 2},
        RowsCase{.name = "two_ropes", .model = "tiny-gemma3", .stage = 3, .recompute = true},
        RowsCase{.name = "rope_of_some_layers", .model = "tiny-smollm3", .stage = 3},
        RowsCase{.name = "rope_in_pairs", .model = "tiny-glm4", .stage = 2, .recompute = true},
        RowsCase{.name = "fused", .model = "tiny-phi4-mini", .stage = 3, .recompute = true},
        RowsCase{.name = "two_ropes_lora", .model = "tiny-gemma3", .stage = 2, .lora = true},
        // Its scores have no scale, so what is rounded otherwise in the first steps (1e-8, as in the
        // others) is 40 times as much after 50.
        RowsCase{.name = "heads_of_two_sizes",
                 .model = "tiny-gemma4",
                 .stage = 3,
                 .recompute = true,
                 .steps = 20},
        RowsCase{
            .name = "heads_of_two_sizes_lora", .model = "tiny-gemma4", .stage = 2, .lora = true},
        // In transformers too, weights moved to the next fp32 move this model's gradient norm by 1e-5
        // in the first step and 1e-2 in the fifth (tiny-qwen2's by 3e-7 in ten).
        RowsCase{.name = "inputs_of_layers",
                 .model = "tiny-gemma4-e4b",
                 .stage = 3,
                 .recompute = true,
                 .steps = 4},
        RowsCase{.name = "inputs_of_layers_lora",
                 .model = "tiny-gemma4-e4b",
                 .stage = 2,
                 .lora = true,
                 .steps = 4},
        RowsCase{.name = "layer_norms", .model = "tiny-starcoder2", .stage = 3},
        RowsCase{
            .name = "positions_from_the_third_row", .model = "tiny-opt", .stage = 3, .longest = 24},
        RowsCase{.name = "parallel", .model = "tiny-gpt-neox", .stage = 3, .recompute = true},
        RowsCase{.name = "parallel_one_norm", .model = "tiny-phi", .stage = 2},
        RowsCase{
            .name = "norms_behind_rope", .model = "tiny-hunyuan", .stage = 2, .recompute = true},
        RowsCase{.name = "rope_dynamic", .model = "tiny-llama-dynamic", .longest = 8}),
    [](const auto& info) { return std::string(info.param.name); });

struct PaddedCase {
  int stage;
  bool recompute;
};

class PaddedRows : public testing::TestWithParam<PaddedCase> {};

/// The plain loop with rows padded to the longest of their micro-batch: no weight is given to
/// padding there, so nothing is lost here.
TEST_P(PaddedRows, TrainAsThePlainLoopThatPads) {
  SmallRun run{.recompute = GetParam().recompute,
               .config = small_config(GetParam().stage, kRows, 2)};
  const int64_t vocab = fixture_model(run.model).vocab_size;
  const auto rows = [&](int64_t step, int64_t micro, int rank) {
    std::vector<Row> rows;
    for (int64_t i = 0; i < kRows; ++i)
      rows.push_back(row_of(((step * 2 + micro) * 2 + rank) * kRows + i, 32, vocab, false));
    return rows;
  };
  const auto padded = [&](int64_t step, int64_t micro, int rank) {
    std::vector<Row> all = rows(step, micro, rank);
    size_t longest = 0;
    for (const Row& row : all) longest = std::max(longest, row.ids.size());
    for (Row& row : all) row.ids.resize(longest, 0), row.labels.resize(longest, -100);
    return batch_of(all);
  };
  const auto got = run_batches(run, [&](int64_t step, int64_t micro, int rank) {
    return batch_of(rows(step, micro, rank));
  });
  run.steps = kSteps;
  expect_near_steps(got, run_plain(run, padded), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Stages, PaddedRows,
                         testing::Values(PaddedCase{0, false}, PaddedCase{1, false},
                                         PaddedCase{2, false}, PaddedCase{3, false},
                                         PaddedCase{3, true}),
                         [](const auto& info) {
                           return "stage" + std::to_string(info.param.stage) +
                                  (info.param.recompute ? "_recompute" : "");
                         });

/// One row in a micro-batch of single-token rows: the padded form would hold eight times as much.
TEST(RowsMemory, FollowsTheTokens) {
  testing_support::run_ranks(1, [](comm::Collectives& collectives, memory::Ledger& ledger) {
    SmallRun run{.world = 1, .config = small_config(0, 8)};
    Rank rank(run, collectives);
    rank.load(run.model);
    const auto peak = [&](const std::vector<int64_t>& lengths) {
      std::vector<Row> rows;
      for (const int64_t length : lengths) {
        const auto ids = row_ids(length, length, rank.model.vocab_size);
        rows.push_back({ids, ids});
      }
      const auto batch = batch_of(rows);
      rank.stepper.run({.micro_batches = {&batch, 1}, .rates = {.lr = 0}});  // tables and moments
      ledger.reset_peaks();
      const int64_t before = ledger.live(memory::Class::Activations);
      rank.stepper.run({.micro_batches = {&batch, 1}, .rates = {.lr = 0}});
      return static_cast<double>(ledger.peak(memory::Class::Activations) - before);
    };
    const double even = peak(std::vector<int64_t>(8, 15));
    const double uneven = peak({8, 8, 8, 8, 8, 8, 8, 64});  // as many tokens
    EXPECT_LT(uneven, 1.1 * even);
    EXPECT_GT(uneven, 0.9 * even);
  });
}

TEST(RowsMemory, OneRopeTableIsKept) {
  testing_support::run_ranks(1, [](comm::Collectives& collectives, memory::Ledger& ledger) {
    Rank rank({.world = 1, .config = small_config(0, 1)}, collectives);
    rank.load("tiny-qwen2");
    const int64_t before = ledger.live(memory::Class::Activations);
    constexpr int64_t kLongest = 64;
    for (int64_t length = 1; length <= kLongest; ++length) {
      const auto ids = row_ids(length, length, rank.model.vocab_size);
      rank.stepper.evaluate(batch_of({{ids, ids}}));
    }
    rank.stepper.evaluate(batch_of({row_of(0, 4, 100, false)}));
    EXPECT_EQ(ledger.live(memory::Class::Activations) - before,
              kLongest * rank.model.head_dim * int64_t{sizeof(float)})
        << "cosines and sines of the longest row, which the plan counts";
  });
}

}  // namespace
}  // namespace dsj::train

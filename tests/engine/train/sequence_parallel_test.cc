// sequence_parallel_size: ranks that share rows train as one rank does that has them whole. Expected
// values are those of the same rows without it, which stages_test.cc and model_oracle_test.cc hold
// against libtorch and transformers.
#include <gtest/gtest.h>

#include <mutex>
#include <random>

#include "tests/engine/train/planned_step.h"

namespace dsj::train {
namespace {

using dsconfig::LossNormalization;

using CutRows = std::vector<std::vector<int64_t>>;

/// The rows of a micro-batch: drawn lengths from one token on, some labels or all of them masked.
struct Mixture {
  CutRows ids, labels;
};
Mixture mixture(unsigned seed, int64_t step, int64_t micro_step, int rank, int64_t vocab) {
  std::mt19937 random(static_cast<unsigned>(((seed * 31 + step) * 31 + micro_step) * 31 + rank));
  const auto draw = [&](int64_t most) { return static_cast<int64_t>(random() % most); };
  Mixture out;
  for (int64_t row = 1 + draw(4); row > 0; --row) {
    auto& ids = out.ids.emplace_back();
    for (int64_t t = draw(4) == 0 ? 1 + draw(2) : 3 + draw(20); t > 0; --t)
      ids.push_back(draw(vocab));
    auto& labels = out.labels.emplace_back(ids);
    const int64_t masked = draw(4) == 0 ? std::ssize(ids) : draw(std::ssize(ids));
    std::fill_n(labels.begin(), masked, -100);
  }
  // A rank alone has a target in every step.
  if (micro_step == 0 && out.ids[0].size() > 1) out.labels[0].back() = out.ids[0].back();
  return out;
}

struct CutResult {
  RunResult trained;
  double evaluated = 0;  ///< the sum of the losses of one more micro-batch, over all ranks
};

/// Steps on the same rows whatever run.config.sequence_parallel_size is: of run.world ranks, as many
/// groups as `run` has.
CutResult train_on_mixtures(const SmallRun& run, unsigned seed) {
  CutResult out;
  std::mutex mutex;
  testing_support::run_ranks(
      run.world,
      [&](comm::Collectives& collectives, memory::Ledger&) {
        Rank rank(run, collectives);
        rank.load(run.model);
        const zero::Groups& of = rank.groups.groups();
        const auto batch = [&](int64_t step, int64_t i) {
          const Mixture rows = mixture(seed, step, i, of.data_rank(), rank.model.vocab_size);
          return of.sequence_ranks() > 1
                     ? testing_support::ragged_part(rows.ids, rows.labels,
                                                    {of.sequence_rank(), of.sequence_ranks()})
                     : testing_support::ragged(rows.ids, rows.labels);
        };
        for (int64_t step = 0; step < run.steps; ++step) {
          std::vector<models::MicroBatch> batches;
          for (int64_t i = 0; i < run.config.gradient_accumulation_steps; ++i)
            batches.push_back(batch(step, i));
          const double lr = run.config.optimizer.lr;
          const StepResult done = rank.stepper.run(
              {.micro_batches = batches, .step = step, .rates = {.lr = lr, .previous_lr = lr}});
          if (collectives.rank() != 0) continue;
          out.trained.losses.push_back(done.loss);
          out.trained.norms.push_back(done.grad_norm);
        }
        const auto seen = rank.stepper.evaluate(batch(run.steps, 0));
        {
          const std::lock_guard lock(mutex);
          out.evaluated += seen.loss_sum.item<double>();
        }
        memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
        rank.state.visit_weights([&](const layout::Slot& slot, const at::Tensor& value) {
          out.trained.weights[slot.name] = value.to(at::kFloat).clone();
        });
        rank.groups.shutdown();
      },
      "auto", run.splits());
  return out;
}

void expect_as_whole(const CutResult& got, const CutResult& want) {
  expect_near_steps(got.trained, want.trained, 1e-6);
  EXPECT_NEAR(got.evaluated, want.evaluated, 2e-6 * std::abs(want.evaluated));
  ASSERT_EQ(got.trained.weights.size(), want.trained.weights.size());
  for (const auto& [name, value] : want.trained.weights) {
    // A key's bias moves every score of a query alike: its gradient is nothing but rounding, which
    // AdamW makes a full step.
    if (name.ends_with("k_proj.bias")) continue;
    EXPECT_LT((got.trained.weights.at(name) - value).norm().item<double>(),
              1e-4 * value.norm().item<double>() + 1e-5)
        << name;
  }
}

/// Drawn runs of 2 and 4 ranks, in groups of 2 and 4, at every stage.
TEST(SequenceParallel, CutRowsTrainAsOneRankDoes) {
  for (unsigned seed = 0; seed < 24; ++seed) {
    std::mt19937 random(seed);
    const auto one_of = [&](auto list) {
      return *(list.begin() + static_cast<int64_t>(random() % list.size()));
    };
    using Sizes = std::initializer_list<int64_t>;
    const int together = static_cast<int>(one_of(Sizes{2, 2, 4}));
    const int groups = together == 4 ? 1 : static_cast<int>(one_of(Sizes{1, 2}));
    SmallRun run{.world = groups};
    run.model = one_of(std::initializer_list<const char*>{"tiny-qwen2", "tiny-qwen2-tied"});
    run.steps = 3;
    run.recompute = random() % 2 != 0;
    if (run.recompute && random() % 2 != 0) run.pieces = {.piece = 4};
    run.config = small_config(static_cast<int>(seed % 4), 2, one_of(Sizes{1, 2, 3}));
    run.config.zero.overlap_comm = random() % 2 != 0;
    run.config.zero.reduce_bucket_size = one_of(Sizes{3000, 500'000'000});
    run.config.zero.prefetch_bucket_size = one_of(Sizes{0, 20'000});
    run.config.gradient_clipping = random() % 2 != 0 ? 0.1 : 0;
    run.normalization = one_of(std::initializer_list<LossNormalization>{
        LossNormalization::Token, LossNormalization::Rank, LossNormalization::MicroBatch});
    if (random() % 3 == 0) run.lora = LoraArgs{.r = 4};
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + run.model + ", " + std::to_string(groups) +
                 " groups of " + std::to_string(together) + ", stage " +
                 std::to_string(run.config.zero.stage) + (run.recompute ? ", recompute" : "") +
                 (run.lora ? ", LoRA" : ""));
    const CutResult whole = train_on_mixtures(run, seed);
    run.world = groups * together;
    run.config.sequence_parallel_size = together;
    expect_as_whole(train_on_mixtures(run, seed), whole);
  }
}

/// Plain gradient descent shows the gradients themselves.
TEST(SequenceParallel, GradientsAreThoseOfWholeRows) {
  for (unsigned seed = 100; seed < 106; ++seed) {
    SmallRun run{.world = 1, .steps = 1, .config = small_config(static_cast<int>(seed % 4), 2, 2)};
    run.config.optimizer.kind = dsconfig::OptimizerKind::Sgd;
    run.config.optimizer.weight_decay = 0;
    run.config.optimizer.lr = 1;
    run.config.gradient_clipping = 0;
    SmallRun still = run;
    still.config.optimizer.lr = 0;
    const auto before = train_on_mixtures(still, seed).trained.weights;
    const auto want = train_on_mixtures(run, seed).trained.weights;
    run.world = 4;
    run.config.sequence_parallel_size = seed % 2 == 0 ? 4 : 2;
    if (seed % 2 != 0) {  // two groups have other rows than one rank
      SmallRun two = run;
      two.world = 2;
      two.config.sequence_parallel_size = 1;
      const auto of_two = train_on_mixtures(two, seed).trained.weights;
      const auto got = train_on_mixtures(run, seed).trained.weights;
      for (const auto& [name, value] : of_two)
        EXPECT_LE((got.at(name) - value).abs().max().item<double>(), 1e-6) << name;
      continue;
    }
    const auto got = train_on_mixtures(run, seed).trained.weights;
    double largest = 0;
    for (const auto& [name, value] : want) {
      EXPECT_LE((got.at(name) - value).abs().max().item<double>(), 1e-6) << name;
      largest = std::max(largest, (value - before.at(name)).abs().max().item<double>());
    }
    EXPECT_GT(largest, 1e-2) << "this shows nothing";
  }
}

/// What attention is in each: shared key heads, windows, caps, sinks, head norms, learned positions,
/// rope that depends on the length, latents, experts, heads of two sizes.
TEST(SequenceParallel, EveryKindOfAttention) {
  for (const char* model :
       {"tiny-llama", "tiny-gpt2", "tiny-gemma2", "tiny-gpt-oss", "tiny-qwen3", "tiny-qwen3-moe",
        "tiny-deepseek-v3", "tiny-llama-dynamic", "tiny-mistral", "tiny-minimax-m2", "tiny-falcon",
        "tiny-olmo2", "tiny-phi3", "tiny-stablelm-parallel", "tiny-gemma4", "tiny-gemma4-moe",
        "tiny-gemma4-e2b"}) {
    for (const int together : {2, 4}) {
      SmallRun run{.model = model,
                   .auxiliary_loss = false,
                   .world = 1,
                   .steps = 2,
                   .config = small_config(3, 2, 1)};
      run.recompute = together == 4;
      if (fixture_model(model).num_heads % together != 0) continue;
      SCOPED_TRACE(std::string(model) + ", " + std::to_string(together) + " ranks");
      const CutResult whole = train_on_mixtures(run, 7);
      run.world = together;
      run.config.sequence_parallel_size = together;
      const CutResult cut = train_on_mixtures(run, 7);
      expect_near_steps(cut.trained, whole.trained, 2e-6);
      EXPECT_NEAR(cut.evaluated, whole.evaluated, 1e-5 * std::abs(whole.evaluated));
    }
  }
}

TEST(SequenceParallel, GoesWithGroupsThatKeepParameters) {
  for (const bool mics : {false, true}) {
    SmallRun run{.world = 2, .steps = 3, .config = small_config(3, 1, 2)};
    const CutResult whole = train_on_mixtures(run, 5);
    run.world = 4;
    run.config.sequence_parallel_size = 2;
    (mics ? run.config.zero.mics_shard_size : run.config.zero.hpz_partition_size) = 2;
    SCOPED_TRACE(mics ? "MiCS" : "hpZ");
    expect_as_whole(train_on_mixtures(run, 5), whole);
  }
}

/// Rows of one length, so that the plan's longest rows are the run's.
TEST(SequenceParallel, CostsWhatThePlanSays) {
  for (const char* model : {"tiny-qwen2", "tiny-qwen2-tied", "tiny-gpt2", "tiny-qwen3",
                            "tiny-qwen1.5", "tiny-mistral", "tiny-falcon"}) {
    for (const bool recompute : {false, true}) {
      SmallRun run{
          .model = model, .world = 4, .recompute = recompute, .config = small_config(3, 2, 2)};
      for (const int64_t together : {2, 4}) {
        if (fixture_model(model).num_heads % together != 0) continue;
        run.config.sequence_parallel_size = together;
        SCOPED_TRACE(std::string(model) + (recompute ? ", recompute, " : ", ") +
                     std::to_string(together) + " ranks");
        int64_t heads = 0, activations = 0;
        plan::MemoryModel planned;
        measure_a_step(run, [&](Rank& rank, const memory::Ledger& ledger) {
          heads = rank.groups.counters().of(comm::Traffic::Heads).bytes;
          activations = ledger.peak(memory::Class::Activations);
          planned = plan::memory_model({.model = rank.model,
                                        .config = rank.config,
                                        .world = run.world,
                                        .tokens_per_row = 24,
                                        .recompute = recompute});
        });
        EXPECT_EQ(heads, planned.wire.head_bytes);
        EXPECT_GT(heads, 0);
        EXPECT_LE(activations, planned.bytes.activations);
        EXPECT_GE(activations, planned.bytes.activations / 2) << "the plan is far off";
      }
    }
  }
}

}  // namespace
}  // namespace dsj::train

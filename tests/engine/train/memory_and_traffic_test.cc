// What the keys of zero_optimization promise, measured: live bytes by class, collective calls,
// bytes read.
#include <gtest/gtest.h>

#include "common/files/counting_files.h"
#include "job/plan/zero_plan.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

using memory::Class;

struct Measured {
  int64_t parameters_peak = 0;   ///< bytes, during a step
  int64_t parameters_after = 0;  ///< bytes, after it
  int64_t gradients_peak = 0;
  comm::Counters counters;  ///< of one step
  layout::Schedule schedule;
  int64_t persisted_bytes = 0;
};

Measured measure(const SmallRun& run) {
  Measured out;
  measure_a_step(run, [&](Rank& rank, const memory::Ledger& ledger) {
    out.parameters_peak = ledger.peak(Class::Parameters);
    out.parameters_after = ledger.live(Class::Parameters);
    out.gradients_peak = ledger.peak(Class::Gradients);
    out.counters = rank.collectives.counters();
    out.schedule = rank.stepper.schedule();
    const int persisted = rank.state.plan().persisted;
    if (persisted >= 0) out.persisted_bytes = rank.state.plan().flats[persisted].numel() * 4;
  });
  return out;
}

SmallRun stage3(int64_t prefetch, int64_t live, int64_t reuse, int64_t threshold = 0) {
  SmallRun run{.config = small_config(3)};
  run.config.zero.prefetch_bucket_size = prefetch;
  run.config.zero.max_live_parameters = live;
  run.config.zero.max_reuse_distance = reuse;
  run.config.zero.param_persistence_threshold = threshold;
  return run;
}

TEST(LiveParameters, PeakIsTheSchedulesAndNothingStays) {
  for (const bool recompute : {false, true}) {
    auto run = stage3(0, 1'000'000'000, 0);
    run.recompute = recompute;
    const auto m = measure(run);
    EXPECT_EQ(m.parameters_peak, m.schedule.peak_live * 4) << "recompute " << recompute;
    EXPECT_EQ(m.parameters_after, 0) << "a released parameter is really gone";
  }
}

TEST(LiveParameters, PrefetchBucketTwiceAsLargeHoldsOneMoreLayer) {
  const auto plan = measure(stage3(1, 1'000'000'000, 0));
  int64_t layer = 0;
  {
    const auto units = layout::units_of(fixture_model("tiny-qwen2"));
    layer = plan::plan_flats(units, stage3(0, 1, 0).config, 2).flats[1].numel();
  }
  const auto twice = measure(stage3(layer + 1, 1'000'000'000, 0));
  EXPECT_EQ(plan.parameters_peak, 2 * layer * 4);
  EXPECT_EQ(twice.parameters_peak,
            plan.schedule.peak_live < twice.schedule.peak_live ? twice.schedule.peak_live * 4 : -1);
}

TEST(LiveParameters, MaxLiveParametersBoundsThePeak) {
  const auto units = layout::units_of(fixture_model("tiny-qwen2"));
  const int64_t layer = plan::plan_flats(units, stage3(0, 1, 0).config, 2).flats[1].numel();
  const auto one = measure(stage3(1'000'000, layer, 1'000'000'000));
  const auto two = measure(stage3(1'000'000, 2 * layer, 1'000'000'000));
  EXPECT_EQ(one.parameters_peak, layer * 4);
  EXPECT_LE(two.parameters_peak, 2 * layer * 4);
  EXPECT_GT(two.parameters_peak, layer * 4);
}

TEST(LiveParameters, MaxReuseDistanceSavesGathers) {
  const auto none = measure(stage3(0, 1'000'000'000, 0));
  const auto all = measure(stage3(0, 1'000'000'000, 1'000'000'000));
  const auto units = static_cast<int64_t>(layout::units_of(fixture_model("tiny-qwen2")).size());
  EXPECT_EQ(all.counters.of(comm::Kind::AllGather).calls, units);
  EXPECT_EQ(none.counters.of(comm::Kind::AllGather).calls, units + 2) << "both layers twice";
}

TEST(LiveParameters, PersistenceThresholdKeepsSmallOnesWhole) {
  const auto none = measure(stage3(0, 1'000'000'000, 0, 0));
  const auto norms = measure(stage3(0, 1'000'000'000, 0, 32));
  EXPECT_EQ(none.parameters_after, 0);
  EXPECT_GT(norms.persisted_bytes, 0);
  EXPECT_EQ(norms.parameters_after, norms.persisted_bytes);
}

TEST(Buckets, HalfTheReduceBucketIsTwiceTheCalls) {
  for (const int stage : {0, 1, 2, 3}) {
    auto with = [&](int64_t bucket) {
      SmallRun run{.config = small_config(stage)};
      run.config.zero.reduce_bucket_size = bucket;
      run.config.zero.param_persistence_threshold = 0;
      const auto m = measure(run);
      int64_t predicted = 0;
      for (const auto& flat :
           plan::plan_flats(layout::units_of(fixture_model("tiny-qwen2")), run.config, 2).flats) {
        predicted += static_cast<int64_t>(flat.chunks().size());
      }
      EXPECT_EQ(m.counters.of(comm::Traffic::Gradients).chunks, predicted) << "stage " << stage;
      return predicted;
    };
    const int64_t whole = with(8192), half = with(4096);
    EXPECT_GE(half, 2 * whole - 4);
    EXPECT_LE(half, 2 * whole + 4);
  }
}

TEST(Buckets, AllgatherBucketCutsTheGathersOfStageTwo) {
  auto chunks = [&](int64_t bucket) {
    SmallRun run{.config = small_config(2)};
    run.config.zero.allgather_bucket_size = bucket;
    return measure(run).counters.of(comm::Traffic::Parameters).chunks;
  };
  EXPECT_EQ(chunks(1'000'000), 4) << "one per unit";
  // Embedding 256 x 32, two layers of 11,712, head 256 x 32 + 32, in runs of at most 4,096.
  EXPECT_EQ(chunks(4096), 2 + 3 + 3 + 3);
}

TEST(Traffic, WireBytesFollowTheFormula) {
  const auto units = layout::units_of(fixture_model("tiny-qwen2"));
  for (const int stage : {0, 1, 2, 3}) {
    SmallRun run{.config = small_config(stage, 1, 2)};
    run.config.zero.param_persistence_threshold = 0;
    run.config.zero.max_reuse_distance = 0;
    const auto m = measure(run);
    int64_t padded = 0, layers = 0, first = 0;
    const auto plan = plan::plan_flats(units, run.config, 2);
    for (size_t i = 0; i < plan.flats.size(); ++i) {
      padded += plan.flats[i].numel();
      (i == 0 || i + 1 == plan.flats.size() ? first : layers) += plan.flats[i].numel();
    }
    // Two ranks: (N-1)/N = 1/2. Two micro-steps.
    const int64_t gradients = m.counters.of(comm::Traffic::Gradients).elements;
    const int64_t parameters = m.counters.of(comm::Traffic::Parameters).elements;
    EXPECT_EQ(gradients, stage == 0 ? padded : (stage == 1 ? padded / 2 : 2 * padded / 2)) << stage;
    EXPECT_EQ(parameters, stage == 0 ? 0 : (stage == 3 ? (2 * first + 4 * layers) / 2 : padded / 2))
        << stage;
  }
}

TEST(Gradients, StageTwoHoldsAWindowNotTheModel) {
  SmallRun run{.config = small_config(2, 2, 2)};  // two micro-steps: stage 1 keeps the sum whole
  run.config.zero.overlap_comm = false;
  const auto two = measure(run);
  run.config.zero.stage = 1;
  const auto one = measure(run);
  EXPECT_LT(two.gradients_peak, one.gradients_peak);
}

TEST(CrossEntropy, NeverHoldsTheLogitsOfAMicroBatch) {
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger& ledger) {
    Rank rank({.world = 1, .config = small_config(0)}, collectives);
    rank.load("tiny-qwen2");
    const int64_t batch = 4, seq = 64, hidden = rank.model.hidden_size;
    const at::Tensor x = at::randn({batch * seq, hidden});
    const at::Tensor ids = at::randint(rank.model.vocab_size, {batch, seq}, at::kLong);
    const auto rows = testing_support::rectangle(ids, ids);
    const int head = static_cast<int>(rank.model.num_layers) + 1;
    const int64_t whole = batch * (seq - 1) * rank.model.vocab_size * 4;
    auto peak = [&](int64_t limit) {
      models::set_logits_limit(limit);
      ledger.reset_peaks();
      const int64_t before = ledger.live(Class::Activations);
      const auto turned = models::head_turn(rank.state.unit(head), rank.model, x, rows, 1.0);
      EXPECT_EQ(turned.targets, batch * (seq - 1));
      return ledger.peak(Class::Activations) - before;
    };
    const int64_t half = peak(INT64_MAX),
                  eighth = peak(batch * (seq - 1) / 8 * rank.model.vocab_size);
    models::set_logits_limit(0);
    // What else lives (picked rows, normed rows, gradients) is the same in both; the logits differ.
    EXPECT_LT(eighth, whole);
    EXPECT_NEAR(static_cast<double>(half - eighth), whole * 3.0 / 8, whole / 16.0);
  });
}

TEST(Loading, ARankReadsItsShardOnly) {
  for (const int world : {2, 4}) {
    testing_support::run_ranks(world, [&](comm::Collectives& collectives, memory::Ledger&) {
      PosixFiles posix;
      CountingFiles files(posix);
      SmallRun run{.world = world, .config = small_config(3)};
      run.config.zero.param_persistence_threshold = 0;
      Rank rank(run, collectives);
      const auto source = weights::WeightSource::open(files, fixture(run.model));
      ASSERT_TRUE(source);
      const int64_t header = files.total().bytes_read;
      ASSERT_TRUE(rank.state.load(*source));
      const int64_t read = files.total().bytes_read - header;
      const double shard =
          4.0 * static_cast<double>(layout::total_numel(rank.state.units())) / world;
      EXPECT_LE(read, 1.05 * shard + 256) << "rank " << collectives.rank() << " of " << world;
      EXPECT_GT(read, 0);
    });
  }
}

}  // namespace
}  // namespace dsj::train

// Offload changes where bytes lie and nothing else: the same losses and weights as without, for
// every stage, place, precision and optimizer, before and after a checkpoint.
#include <gtest/gtest.h>

#include "engine/checkpoint/search.h"
#include "engine/checkpoint/writer.h"
#include "tests/engine/train/offload_support.h"

namespace dsj::train {
namespace {

void expect_same_bits(const RunResult& got, const RunResult& want, const std::string& what) {
  EXPECT_EQ(got.losses, want.losses) << what;
  EXPECT_EQ(got.norms, want.norms) << what;
  ASSERT_EQ(got.weights.size(), want.weights.size());
  for (const auto& [name, value] : want.weights)
    EXPECT_TRUE(got.weights.at(name).equal(value)) << what << ": " << name;
}

/// Within 1e-6, where sums are made in another order.
void expect_close(const RunResult& got, const RunResult& want, const std::string& what) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], want.losses[i], 1e-6 * want.losses[i]) << what << ", step " << i;
  for (const auto& [name, value] : want.weights)
    EXPECT_LT((got.weights.at(name) - value).norm().item<double>(),
              1e-4 * value.norm().item<double>())
        << what << ": " << name;
}

std::string text(const SmallRun& run) {
  const auto& offload = run.config.offload;
  return "stage " + std::to_string(run.config.zero.stage) + ", optimizer " +
         dsconfig::name_of(offload.optimizer.device) + ", param " +
         dsconfig::name_of(offload.param.device) + ", world " + std::to_string(run.world);
}

constexpr OffloadDevice kPlaces[] = {OffloadDevice::None, OffloadDevice::Cpu, OffloadDevice::Nvme};

/// All runs of a precision and world against the run of the same stage without offload.
void compare_all(bool bf16, int world) {
  const ScratchRoot root;
  for (int stage = 1; stage <= 3; ++stage) {
    RunResult plain;
    for (const OffloadDevice optimizer : kPlaces) {
      for (const OffloadDevice param : kPlaces) {
        if (param != OffloadDevice::None && stage != 3) continue;
        SmallRun run = offloaded(stage, optimizer, param, root.path(), world);
        if (bf16) make_bf16(run);
        const RunResult result = run_small(run);
        if (optimizer == OffloadDevice::None && param == OffloadDevice::None)
          plain = result;
        else if (world == 1 && param != OffloadDevice::None)  // stage 3 against stage 0
          expect_close(result, plain, text(run));
        else
          expect_same_bits(result, plain, text(run));
      }
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(root.path())) << "scratch files are removed";
}

TEST(Offload, EqualsNoOffload) {
  compare_all(false, 2);
}

TEST(Offload, EqualsNoOffloadInBf16) {
  compare_all(true, 2);
}

TEST(Offload, EqualsNoOffloadOnOneRank) {
  compare_all(false, 1);
}

TEST(Offload, EqualsNoOffloadForEveryOptimizer) {
  using enum dsconfig::OptimizerKind;
  const ScratchRoot root;
  for (const auto kind : {Sgd, Adagrad, RMSprop, Lion, Rprop}) {
    for (const bool bf16 : {false, true}) {
      RunResult plain;
      for (const OffloadDevice place : kPlaces) {
        SmallRun run = offloaded(3, place, place, root.path());
        run.steps = 3;
        run.config.optimizer.kind = kind;
        run.config.optimizer.lr = 1e-3;
        run.config.optimizer.initial_accumulator = 0.1;  // a state that does not begin at zero
        if (bf16) make_bf16(run);
        const RunResult result = run_small(run);
        if (place == OffloadDevice::None)
          plain = result;
        else
          expect_same_bits(
              result, plain,
              dsconfig::name_of(run.config.optimizer) + ", " + text(run) + (bf16 ? ", bf16" : ""));
      }
    }
  }
}

/// The norm of a parameter is a sum over runs, and tiles are other runs: not the same bits.
TEST(Offload, EqualsNoOffloadWithLamb) {
  const ScratchRoot root;
  RunResult plain;
  for (const OffloadDevice place : kPlaces) {
    SmallRun run = offloaded(3, place, place, root.path());
    run.config.optimizer.kind = dsconfig::OptimizerKind::Lamb;
    run.config.optimizer.lr = 1e-3;
    const RunResult result = run_small(run);
    if (place == OffloadDevice::None)
      plain = result;
    else
      expect_close(result, plain, text(run));
  }
}

TEST(Offload, PartsOfAShardInThreePlaces) {
  const ScratchRoot root;
  const RunResult plain = run_small(offloaded(3, OffloadDevice::None, OffloadDevice::None, ""));
  for (const OffloadDevice device : {OffloadDevice::Cpu, OffloadDevice::Nvme}) {
    SmallRun run = offloaded(3, device, OffloadDevice::Nvme, root.path());
    run.config.offload.optimizer.ratio = 0.3;
    run.config.offload.param.max_in_cpu = 9000;
    expect_same_bits(run_small(run), plain, text(run));
  }
}

/// Steps [first, last) of a run that starts from the checkpoint in `from` (or the weights) and
/// leaves one in `to`.
std::vector<double> losses_of_part(const SmallRun& run, int64_t first, int64_t last,
                                   const std::string& from, const std::string& to) {
  std::vector<double> losses;
  testing_support::run_ranks(run.world, [&](comm::Collectives& collectives, memory::Ledger&) {
    Rank rank(run, collectives);
    PosixFiles files;
    if (from.empty()) {
      rank.load(run.model);
    } else {
      auto newest = checkpoint::newest(files, from);
      ASSERT_TRUE(newest && newest->reader);
      rank.stepper.set_updates(newest->reader->run_state()["updates"]);
      const auto restored = rank.state.restore(*newest->reader);
      ASSERT_TRUE(restored) << restored.error().to_string();
    }
    for (int64_t step = first; step < last; ++step) {
      const double loss = rank.step(step).loss;
      if (collectives.rank() == 0) losses.push_back(loss);
    }
    if (to.empty()) return;
    const checkpoint::WriteOptions options{.checkpoints_dir = to,
                                           .step = last,
                                           .rank = collectives.rank(),
                                           .world = collectives.world()};
    const auto written = checkpoint::write_rank_from(
        files, options,
        [&](const checkpoint::EmitPiece& emit) { return rank.state.for_pieces(emit); });
    ASSERT_TRUE(written) << written.error().to_string();
    collectives.barrier({})->wait();
    if (options.rank == 0) {
      const auto published = checkpoint::publish(
          files, options,
          {.extents = rank.state.extents(), .run_state = {{"updates", rank.stepper.updates()}}});
      ASSERT_TRUE(published) << published.error().to_string();
    }
    collectives.barrier({})->wait();
  });
  return losses;
}

class OffloadResume : public testing::TestWithParam<bool> {};

TEST_P(OffloadResume, IsBitIdenticalFromAndToEveryPlace) {
  const ScratchRoot root;
  const auto run_at = [&](OffloadDevice place) {
    SmallRun run = offloaded(3, place, place, root.path() + "/nvme");
    if (GetParam()) make_bf16(run);
    return run;
  };
  const auto whole = losses_of_part(run_at(OffloadDevice::None), 0, 6, "", "");
  for (const OffloadDevice from : kPlaces) {
    const std::string saved = root.path() + "/" + dsconfig::name_of(from);
    losses_of_part(run_at(from), 0, 3, "", saved);
    for (const OffloadDevice to : kPlaces) {
      EXPECT_EQ(losses_of_part(run_at(to), 3, 6, saved, ""),
                std::vector<double>(whole.begin() + 3, whole.end()))
          << dsconfig::name_of(from) << " to " << dsconfig::name_of(to);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OffloadResume, testing::Bool(), [](const auto& info) {
  return info.param ? std::string("bf16") : std::string("fp32");
});

}  // namespace
}  // namespace dsj::train

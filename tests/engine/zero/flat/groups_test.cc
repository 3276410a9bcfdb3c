// Who is in which group; and with sums that are exact in every order, MiCS and hpZ are plain stage 3 to
// the bit. What they cost in a whole step is rank_groups_test.cc's.
#include "engine/zero/flat/groups.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <random>

#include "common/files/posix_files.h"
#include "engine/zero/model_state.h"
#include "tests/engine/support/fixtures.h"
#include "tests/engine/support/ranks.h"

namespace dsj::zero {
namespace {

using GroupValues = std::map<std::string, at::Tensor>;

dsconfig::ResolvedConfig grouped_config(int64_t hpz, int64_t mics) {
  dsconfig::ResolvedConfig config;
  config.zero.stage = 3;
  config.zero.param_persistence_threshold = 64;
  config.zero.hpz_partition_size = hpz;
  config.zero.mics_shard_size = mics;
  config.averaging.mean = false;  // a division would round
  config.optimizer.kind = dsconfig::OptimizerKind::Sgd;
  return config;
}

void in_groups_of(int world, const dsconfig::ResolvedConfig& config,
                  const std::function<void(RunGroups&)>& body) {
  testing_support::run_ranks(
      world,
      [&](comm::Collectives& all, memory::Ledger&) {
        auto groups = RunGroups::make(all, plan::rank_groups(config, world));
        ASSERT_TRUE(groups) << groups.error().to_string();
        body(*groups);
        // Rank 0 serves the store through which other ranks may be joining their parts still.
        all.barrier({})->wait();
        groups->shutdown();
      },
      "auto", true);
}

TEST(GroupsTest, MicsCutsConsecutiveRanksAndJoinsThoseOfOnePlace) {
  in_groups_of(6, grouped_config(1, 2), [](RunGroups& run) {
    const Groups& groups = run.groups();
    const int rank = groups.world->rank();
    EXPECT_EQ(groups.shards->world_ranks(), (std::vector{rank / 2 * 2, rank / 2 * 2 + 1}));
    EXPECT_EQ(groups.replicas->world_ranks(), (std::vector{rank % 2, rank % 2 + 2, rank % 2 + 4}));
    EXPECT_EQ(groups.near, nullptr);
    EXPECT_EQ(groups.first(), rank < 2);
  });
}

TEST(GroupsTest, HpzKeepsTheWorldAndAddsAGroup) {
  in_groups_of(4, grouped_config(2, -1), [](RunGroups& run) {
    const Groups& groups = run.groups();
    const int rank = groups.world->rank();
    EXPECT_EQ(groups.shards, groups.world);
    EXPECT_EQ(groups.replicas, nullptr);
    EXPECT_EQ(groups.near->world_ranks(), (std::vector{rank / 2 * 2, rank / 2 * 2 + 1}));
    EXPECT_TRUE(groups.first());
  });
}

TEST(GroupsTest, CountersAreOfAllGroups) {
  in_groups_of(4, grouped_config(1, 2), [](RunGroups& run) {
    run.reset_counters();
    const at::Tensor four = at::ones({4});
    for (comm::Collectives* group :
         {run.groups().world, run.groups().shards, run.groups().replicas})
      group->all_reduce(four, comm::Op::Sum, {comm::Traffic::Gradients, "x"})->wait();
    // 2 n (W-1)/W elements each, of 4, 2 and 2 ranks.
    const auto cell = run.counters().of(comm::Traffic::Gradients);
    EXPECT_EQ(cell.calls, 3);
    EXPECT_EQ(cell.elements, 6 + 4 + 4);
    EXPECT_EQ(four[0].item<float>(), 16);
    run.reset_counters();
    EXPECT_EQ(run.counters().bytes(), 0);
  });
}

/// A gradient of small integers, which float adds up exactly in any order.
at::Tensor whole_numbers(const layout::Parameter& parameter, int rank, int64_t micro_step) {
  const auto key = static_cast<int64_t>(parameter.name.size());
  return (at::arange(parameter.numel(), at::kLong) * 7 + key + 3 * rank + micro_step)
      .remainder(11)
      .sub(5)
      .view(parameter.shape)
      .to(at::kFloat);
}

/// Weights after two updates with integer gradients, and what was saved then.
struct GroupRun {
  GroupValues weights;
  std::map<std::string, std::vector<int>> saved;  ///< "state parameter": times, by element
};

GroupRun train_in_groups(int world, int64_t micro_steps, const dsconfig::ResolvedConfig& config) {
  GroupRun out;
  std::mutex mutex;
  in_groups_of(world, config, [&](RunGroups& run) {
    PosixFiles files;
    const auto model = *layout::read_model_config(testing_support::fixture("tiny-qwen2"));
    const auto source = *weights::WeightSource::open(files, testing_support::fixture("tiny-qwen2"));
    ModelState state(model, config, at::kCPU, run.groups());
    ASSERT_TRUE(state.load(source));
    const int rank = run.groups().world->rank();
    for (int64_t update = 0; update < 2; ++update) {
      for (int64_t micro = 0; micro < micro_steps; ++micro) {
        for (int unit = static_cast<int>(state.units().size()) - 1; unit >= 0; --unit) {
          // Every unit is gathered for it, as in a step.
          const int flat = state.plan().unit_flat[unit];
          if (flat >= 0 && state.flat(flat).sharded_parameters()) state.gather(flat);
          state.wait_for(unit);
          const auto& parameters = state.units()[unit].parameters;
          for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
            const GradView view = state.unit(unit).grad(i);
            const at::Tensor own = whole_numbers(parameters[i], rank, micro + update);
            if (view.accumulate)
              view.tensor.add_(own);
            else
              view.tensor.copy_(own);
          }
          if (flat >= 0 && state.flat(flat).sharded_parameters()) state.release(flat);
          if (flat >= 0) state.reduce(flat, micro + 1 == micro_steps);
        }
        if (state.plan().persisted >= 0)
          state.reduce(state.plan().persisted, micro + 1 == micro_steps);
      }
      state.finish_reductions();
      state.step({.rates = {.lr = 0.125, .previous_lr = 0.125}, .updates = update});
      state.clear_grad();
    }
    GroupValues mine;
    state.visit_weights([&](const layout::Slot& slot, const at::Tensor& value) {
      mine[slot.name] = value.clone();
    });
    const std::lock_guard lock(mutex);
    if (rank == 0) out.weights = std::move(mine);
    for (const auto& extent : state.extents())
      out.saved[extent.state + " " + extent.param].resize(static_cast<size_t>(extent.elements));
    ASSERT_TRUE(state.for_pieces([&](const checkpoint::Piece& piece) -> Status {
      auto& times = out.saved[piece.state + " " + piece.param];
      for (size_t i = 0; i < piece.data.size(); ++i)
        ++times.at(static_cast<size_t>(piece.offset) + i);
      return {};
    }));
  });
  return out;
}

TEST(GroupsTest, ExactSumsGivePlainStageThreesBits) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    const std::vector<int> worlds = {2, 3, 4, 6, 8};
    const int world = worlds[random() % worlds.size()];
    const int64_t micro_steps = 1 + static_cast<int64_t>(random() % 3);
    std::vector<int64_t> sizes;
    for (int64_t n = 1; n <= world; ++n)
      if (world % n == 0) sizes.push_back(n);
    const int64_t group = sizes[random() % sizes.size()];
    auto plain = grouped_config(1, -1), hpz = grouped_config(group, -1),
         mics = grouped_config(1, group);
    for (auto* config : {&plain, &hpz, &mics}) {
      config->zero.overlap_comm = seed % 2 == 0;
      config->zero.reduce_bucket_size = seed % 3 == 0 ? 3000 : 500'000'000;
      // Its matrices go to their owners among the ranks of a group, and come back whole.
      if (seed % 3 == 1) config->optimizer.kind = dsconfig::OptimizerKind::Muon;
    }
    const GroupRun want = train_in_groups(world, micro_steps, plain);
    for (const auto* config : {&hpz, &mics}) {
      SCOPED_TRACE((config == &hpz ? "hpZ " : "MiCS ") + std::to_string(group) + " of " +
                   std::to_string(world) + ", " + std::to_string(micro_steps) + " micro-steps");
      const GroupRun got = train_in_groups(world, micro_steps, *config);
      ASSERT_EQ(got.weights.size(), want.weights.size());
      for (const auto& [name, value] : want.weights)
        EXPECT_TRUE(got.weights.at(name).equal(value)) << name;
      for (const auto& [name, times] : got.saved)
        EXPECT_TRUE(std::ranges::all_of(times, [](int n) { return n == 1; }))
            << name << " is not saved once";
    }
  }
}

}  // namespace
}  // namespace dsj::zero

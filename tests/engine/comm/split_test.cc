// Groups of some of the ranks: who is in which, and what every backend promises of them.
#include "engine/comm/split.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/comm/observed.h"
#include "tests/engine/comm/ranks.h"

namespace dsj::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing_support::require;
using testing_support::run_ranks;
using testing_support::Seat;
using Ranks = std::vector<int>;

TEST(Members, AreOrderedByKeyAndThenByRank) {
  const std::vector<Part> parts{{"x", 1, 5},           {"x", 0, 0}, {"x", 1, 2},
                                {"x", Part::kNone, 0}, {"x", 1, 2}, {"x", 0, 0}};
  const auto members = members_of(parts);
  ASSERT_TRUE(members.has_value());
  EXPECT_EQ(*members, (std::map<int, Ranks>{{0, {1, 5}}, {1, {2, 4, 0}}})) << "one list per part";
}

TEST(Members, OfTwoSplitsAreRefused) {
  const auto members = members_of(std::vector<Part>{{"host", 0, 0}, {"rail", 0, 0}});
  ASSERT_FALSE(members.has_value());
  EXPECT_EQ(members.error().message, "rank 1 splits its group by \"rail\", rank 0 by \"host\"");
}

/// The sum of the world numbers of a part, by each of its operations.
void use(Collectives& group, const Ranks& world_ranks, const std::string& what) {
  require(group.world_ranks() == world_ranks, what + ": other ranks");
  const auto size = static_cast<std::int64_t>(world_ranks.size());
  const auto me = static_cast<std::size_t>(group.rank());
  require(group.world() == size && group.world_rank() == world_ranks[me], what + ": who I am");
  std::vector<double> numbers(world_ranks.begin(), world_ranks.end());
  const at::Tensor expected = at::tensor(numbers, at::kDouble);
  const at::Tensor mine = at::full({1}, group.world_rank(), at::kDouble);
  at::Tensor all = at::zeros({size}, at::kDouble), sum = mine.clone(),
             share = at::zeros({1}, at::kDouble);
  const Label label{Traffic::Control, what};
  const WorkPtr gathered = group.all_gather(all, mine, label);
  const WorkPtr summed = group.all_reduce(sum, Op::Sum, label);
  gathered->wait();
  summed->wait();
  require(at::equal(all, expected), what + ": all_gather");
  require(at::equal(sum, expected.sum().view({1})), what + ": all_reduce");
  group.reduce_scatter(share, all.clone(), Op::Sum, label)->wait();
  require(share.item<double>() == numbers[me] * static_cast<double>(size),
          what + ": reduce_scatter");
  at::Tensor last = mine.clone();
  group.broadcast(last, group.world() - 1, label)->wait();
  require(last.item<double>() == numbers.back(), what + ": broadcast");
  group.barrier(label)->wait();
}

std::unique_ptr<Collectives> join_with_splits(const Seat& seat, const std::string& backend,
                                              std::chrono::milliseconds timeout = 300s) {
  Options options = seat.options(backend, timeout);
  options.splits = true;
  return testing_support::joined(options);
}

std::unique_ptr<Collectives> part_of(Collectives& group, const Part& part) {
  auto made = group.split(part);
  if (!made) throw std::runtime_error(made.error().to_string());
  return std::move(*made);
}

class Parts : public ::testing::TestWithParam<std::string> {
 protected:
  static std::vector<std::string> on_four(const std::function<void(const Seat&)>& body,
                                          const std::set<int>& lost = {}) {
    return run_ranks(4, body, lost);
  }
  static void all_well(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) EXPECT_EQ(text, "");
  }
};

TEST_P(Parts, WorkBesideTheWorldAndEachOther) {
  all_well(on_four([](const Seat& seat) {
    const auto world = join_with_splits(seat, GetParam());
    const int rank = seat.rank;
    const auto half = part_of(*world, {"half", rank / 2, rank});
    const auto odd = part_of(*world, {"odd", rank % 2, -rank});  // backwards
    require(half->group() == "half" && world->group().empty(), "a group's name");
    at::Tensor sum = at::ones({100'000});
    const WorkPtr under_way = world->all_reduce(sum, Op::Sum, {});
    use(*half, rank < 2 ? Ranks{0, 1} : Ranks{2, 3}, "half");
    use(*odd, rank % 2 == 0 ? Ranks{2, 0} : Ranks{3, 1}, "odd");
    under_way->wait();
    require(sum[99'999].item<float>() == 4, "the world's sum");
    require(half->counters().of(Kind::AllReduce).calls == 1 &&
                world->counters().of(Kind::AllReduce).calls == 1,
            "each group counts its own");
    half->shutdown();
    use(*odd, rank % 2 == 0 ? Ranks{2, 0} : Ranks{3, 1}, "odd, after half is closed");
    world->shutdown();
    odd->shutdown();
  }));
}

TEST_P(Parts, OfOneRankOfNobodyAndOfParts) {
  all_well(on_four([](const Seat& seat) {
    const auto world = join_with_splits(seat, GetParam());
    const auto three = part_of(*world, {"three", seat.rank == 1 ? Part::kNone : 0, 0});
    require((three == nullptr) == (seat.rank == 1), "rank 1 is in none");
    if (three) {
      use(*three, {0, 2, 3}, "three");
      const auto inner = part_of(*three, {"inner", seat.rank == 0 ? 0 : 1, -seat.rank});
      use(*inner, seat.rank == 0 ? Ranks{0} : Ranks{3, 2}, "inner");
      inner->shutdown();
      three->shutdown();
    }
    const auto alone = part_of(*world, {"alone", seat.rank, 0});
    use(*alone, {seat.rank}, "alone");
    use(*part_of(*alone, {"", 0, 0}), {seat.rank}, "alone again");
    require(part_of(*alone, {"", Part::kNone, 0}) == nullptr, "nobody");
    world->barrier({})->wait();
    world->shutdown();
  }));
}

TEST_P(Parts, FailByTheirNameWithTheWorldsNumbersAndAlone) {
  const bool gloo = GetParam() == "gloo";  // it does not say who left
  const auto texts = on_four(
      [&](const Seat& seat) {
        const auto world = join_with_splits(seat, GetParam());
        const auto half = part_of(*world, {"half", seat.rank / 2, 0});
        world->barrier({})->wait();  // nobody still joins by rank 0's store: rank 0 may go
        if (seat.rank < 2) return use(*half, {0, 1}, "half");
        half->barrier({})->wait();
        world->barrier({Traffic::Control, "both"});
        if (seat.rank == 3) raise(SIGKILL);
        half->barrier({Traffic::Control, "end"})->wait();
      },
      {3});
  EXPECT_EQ(texts[0], "");
  EXPECT_EQ(texts[1], "");
  EXPECT_THAT(texts[2], StartsWith("rank 2: barrier #2 of group half (end) failed: "));
  if (!gloo) {
    EXPECT_THAT(texts[2], HasSubstr("rank 3 "));
  }
}

TEST_P(Parts, AnAbortedOneLeavesTheWorldInOrder) {
  if (GetParam() == "gloo") GTEST_SKIP() << "gloo hears of an abort when its timeout has passed";
  all_well(on_four([](const Seat& seat) {
    const auto world = join_with_splits(seat, GetParam());
    const auto half = part_of(*world, {"half", seat.rank / 2, 0});
    half->abort("is over");
    try {
      half->barrier({Traffic::Control, "end"})->wait();
      require(false, "it did not fail");
    } catch (const CollectiveError& error) {
      const std::string who = "rank " + std::to_string(seat.rank);
      require(std::string(error.what()) == who + ": barrier #1 of group half (end) is over",
              error.what());
    }
    at::Tensor sum = at::ones({3});
    world->all_reduce(sum, Op::Sum, {})->wait();
    require(sum[0].item<float>() == 4, "the world's sum");
    world->shutdown();
  }));
}

INSTANTIATE_TEST_SUITE_P(Backends, Parts,
                         ::testing::Values("gloo", "ring", "shm", "hierarchical", "auto"),
                         [](const auto& info) { return info.param; });

TEST(Split, IsRefusedAloudWhenRanksMeanDifferentOnesOrStayAway) {
  const auto texts = run_ranks(3, [](const Seat& seat) {
    const auto world = join_with_splits(seat, "shm", 4s);
    const auto meeting = seat.join("shm", 300s, 1);
    const auto mixed = world->split({seat.rank == 2 ? "rail" : "host", 0, 0});
    require(!mixed.has_value() && mixed.error().kind == ErrorKind::BadInput, "mixed up");
    require(mixed.error().message == "rank 2 splits its group by \"rail\", rank 0 by \"host\"",
            mixed.error().message);
    if (seat.rank == 1) return meeting->barrier({})->wait();
    const auto part = world->split({"host", 0, 0});
    meeting->barrier({})->wait();
    require(!part.has_value() && part.error().kind == ErrorKind::Transient, "rank 1 is not there");
    throw std::runtime_error(part.error().message);
  });
  EXPECT_THAT(texts[0], StartsWith("rank 0: rank 1 did not join within "));
  EXPECT_EQ(texts[1], "");
  EXPECT_THAT(texts[2], StartsWith("rank 2: rank 1 did not join within "));
}

TEST(Split, OfAnObservedGroupIsObserved) {
  auto single = make_collectives({});
  ASSERT_TRUE(single);
  std::vector<Call> calls;
  const auto group = observed(
      std::move(*single), [&](const Call& call) { calls.push_back(call); }, at::kCPU);
  const auto part = group->split({"host", 0, 0});
  ASSERT_TRUE(part.has_value());
  (*part)->barrier({Traffic::Control, "end"})->wait();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].unit, "end");
  EXPECT_EQ((*part)->group(), "host");
  (*part)->shutdown();
  group->shutdown();
}

}  // namespace
}  // namespace dsj::comm

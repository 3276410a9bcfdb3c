#include <gtest/gtest.h>

#include "engine/comm/collectives.h"

namespace dsj::comm {
namespace {

std::unique_ptr<Collectives> single() {
  auto group = make_collectives({.rank = 0, .world = 1});
  if (!group) throw std::runtime_error(group.error().to_string());
  return std::move(*group);
}

TEST(Single, CopiesWhatItIsGiven) {
  const auto group = single();
  EXPECT_EQ(group->backend(), "single");
  const at::Tensor in = at::arange(7, at::kFloat);
  at::Tensor gathered = at::zeros({7}, at::kFloat);
  at::Tensor reduced = at::zeros({7}, at::kFloat);
  group->all_gather(gathered, in, {Traffic::Parameters, "layer 0"})->wait();
  group->reduce_scatter(reduced, in.clone(), Op::Sum, {Traffic::Gradients, "layer 0"})->wait();
  EXPECT_TRUE(at::equal(gathered, in));
  EXPECT_TRUE(at::equal(reduced, in));
  at::Tensor sum = in.clone();
  group->all_reduce(sum, Op::Sum, {})->wait();
  group->broadcast(sum, 0, {})->wait();
  group->barrier({})->wait();
  EXPECT_TRUE(at::equal(sum, in));
}

TEST(Single, CountsCallsAndNoBytes) {
  const auto group = single();
  const at::Tensor whole = at::arange(4, at::kFloat);
  group->all_gather(whole, whole, {Traffic::Parameters, "a"})->wait();
  group->all_reduce(whole, Op::Max, {Traffic::Control, "b"})->wait();
  const Counters counters = group->counters();
  EXPECT_EQ(counters.of(Traffic::Parameters).calls, 1);
  EXPECT_EQ(counters.of(Kind::AllReduce).calls, 1);
  EXPECT_EQ(counters.bytes(), 0);
  group->reset_counters();
  EXPECT_EQ(group->counters().of(Traffic::Parameters).calls, 0);
}

TEST(Single, AbortFailsLaterOperationsByName) {
  const auto group = single();
  group->barrier({})->wait();
  group->abort("stopped by a signal");
  try {
    group->barrier({Traffic::Control, "end of step"})->wait();
    FAIL() << "the operation did not fail";
  } catch (const CollectiveError& error) {
    EXPECT_STREQ(error.what(), "rank 0: barrier #2 (end of step) stopped by a signal");
  }
}

TEST(Options, ImpossibleRankIsBadInput) {
  const auto group = make_collectives({.rank = 2, .world = 2});
  ASSERT_FALSE(group.has_value());
  EXPECT_EQ(group.error().kind, ErrorKind::BadInput);
}

TEST(ContractDeathTest, WrongSizesStopTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto group = single();
  EXPECT_DEATH(group->all_gather(at::zeros({3}), at::zeros({2}), {}), "out has 3 elements");
  EXPECT_DEATH(group->all_reduce(at::zeros({4, 4}).t(), Op::Sum, {}), "not contiguous");
}

}  // namespace
}  // namespace dsj::comm

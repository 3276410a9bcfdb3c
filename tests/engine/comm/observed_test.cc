// The decorator that times collectives: the same answers, one call told per operation.
#include "engine/comm/observed.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

namespace dsj::comm {
namespace {

TEST(Observed, AnswersAreTheSameAndEveryCallIsTold) {
  auto single = make_collectives({});
  ASSERT_TRUE(single);
  std::vector<Call> calls;
  const auto group = observed(
      std::move(*single), [&](const Call& call) { calls.push_back(call); }, at::kCPU);
  const at::Tensor in = at::arange(6, at::kFloat), out = at::zeros({6});
  group->all_gather(out, in, {Traffic::Parameters, "layer 3"})->wait();
  EXPECT_TRUE(at::equal(out, in));
  const at::Tensor sum = at::ones({4}, at::kDouble);
  group->all_reduce(sum, Op::Sum, {Traffic::Control, "step"})->wait();
  group->broadcast(sum, 0, {})->wait();
  group->reduce_scatter(out, in.clone(), Op::Sum, {Traffic::Gradients, "head"})->wait();
  group->barrier({})->wait();
  ASSERT_EQ(calls.size(), 5u);
  EXPECT_EQ(calls[0].kind, Kind::AllGather);
  EXPECT_EQ(calls[0].unit, "layer 3");
  EXPECT_EQ(calls[0].bytes, 24);
  EXPECT_EQ(calls[1].bytes, 32);
  EXPECT_EQ(calls[3].kind, Kind::ReduceScatter);
  EXPECT_EQ(calls[4].bytes, 0);
  for (const Call& call : calls) EXPECT_GE(call.seconds, 0);
  EXPECT_EQ(group->counters().of(Traffic::Parameters).calls, 1) << "counted by class";
  EXPECT_EQ(group->counters().of(Traffic::Control).calls, 3);
  EXPECT_EQ(group->counters().in_flight_max, 1) << "nothing overlaps";
  group->shutdown();
}

}  // namespace
}  // namespace dsj::comm

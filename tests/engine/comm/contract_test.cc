// What every backend promises (collectives.h), checked on 2, 3 and 4 processes; of the one in two
// levels, on two and three hosts of two.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/comm/collectives.h"
#include "job/flight_log.h"
#include "tests/engine/comm/backend_cases.h"
#include "tests/engine/comm/ranks.h"

namespace dsj::comm {
namespace {

using namespace std::chrono_literals;
using testing_support::backend_cases;
using testing_support::BackendCase;
using testing_support::kBackends;
using testing_support::name_of_case;
using testing_support::require;
using testing_support::run_ranks;
using testing_support::Seat;

constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong};

/// Small integers, different for each rank, that every dtype holds exactly, as their sums.
at::Tensor values(int rank, std::int64_t n, at::ScalarType dtype) {
  at::Tensor result = at::empty({n}, at::kFloat);
  float* data = result.data_ptr<float>();
  int value = rank * 5 % 13;
  for (std::int64_t i = 0; i < n; ++i, value = (value + 7) % 13) {
    data[i] = static_cast<float>(value - 6);
  }
  return result.to(dtype);
}

at::Tensor expected_reduction(int world, std::int64_t n, at::ScalarType dtype, Op op) {
  at::Tensor result = values(0, n, at::kFloat);
  for (int rank = 1; rank < world; ++rank) {
    const at::Tensor other = values(rank, n, at::kFloat);
    result = op == Op::Sum ? result + other : at::maximum(result, other);
  }
  return result.to(dtype);
}

at::Tensor expected_gather(int world, std::int64_t n, at::ScalarType dtype) {
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < world; ++rank) parts.push_back(values(rank, n, dtype));
  return at::cat(parts);
}

void same(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
  if (at::equal(found, expected)) return;
  const at::Tensor wrong = at::nonzero(found.ne(expected)).view(-1);
  const auto first = wrong[0].item<std::int64_t>();
  throw std::runtime_error(what + ": " + std::to_string(wrong.numel()) + " of " +
                           std::to_string(found.numel()) + " elements differ, first #" +
                           std::to_string(first) + ": " +
                           std::to_string(found[first].item<double>()) + " instead of " +
                           std::to_string(expected[first].item<double>()));
}

class Contract : public ::testing::TestWithParam<BackendCase> {
 protected:
  /// Runs body on every rank and expects that none fails.
  void all_well(const std::function<void(Collectives&)>& body) {
    const auto texts = run_ranks(GetParam().world, [&](const Seat& seat) {
      const auto group = seat.join(GetParam().backend, 300s);
      require(group->backend() == GetParam().backend, "got another backend");
      body(*group);
      group->shutdown();
    });
    for (const std::string& text : texts) EXPECT_EQ(text, "");
  }
};

void check_exact(Collectives& group, std::int64_t n, at::ScalarType dtype) {
  const int rank = group.rank();
  const int world = group.world();
  const std::string what = std::string(at::toString(dtype)) + " n " + std::to_string(n) + " rank " +
                           std::to_string(rank) + " ";
  const Label label{Traffic::Control, "exact"};
  const at::Tensor gathered = expected_gather(world, n, dtype);

  at::Tensor out = at::full({world * n}, 99, dtype);
  group.all_gather(out, values(rank, n, dtype), label)->wait();
  same(out, gathered, what + "all_gather");

  at::Tensor in_place = at::full({world * n}, 99, dtype);
  in_place.narrow(0, rank * n, n).copy_(values(rank, n, dtype));
  group.all_gather(in_place, in_place.narrow(0, rank * n, n), label)->wait();
  same(in_place, gathered, what + "all_gather in place");

  at::Tensor dealt = at::full({world * n}, 99, dtype);
  group.all_to_all(dealt, values(rank, world * n, dtype), label)->wait();
  std::vector<at::Tensor> parts;
  for (int from = 0; from < world; ++from)
    parts.push_back(values(from, world * n, dtype).narrow(0, rank * n, n));
  same(dealt, at::cat(parts), what + "all_to_all");

  for (const Op op : {Op::Sum, Op::Max}) {
    const std::string named = what + (op == Op::Sum ? "sum " : "max ");
    const at::Tensor reduced = expected_reduction(world, world * n, dtype, op);
    at::Tensor slice = at::full({n}, 99, dtype);
    group.reduce_scatter(slice, values(rank, world * n, dtype), op, label)->wait();
    same(slice, reduced.narrow(0, rank * n, n), named + "reduce_scatter");

    at::Tensor whole = values(rank, world * n, dtype);
    at::Tensor own = whole.narrow(0, rank * n, n);
    group.reduce_scatter(own, whole, op, label)->wait();
    same(own, reduced.narrow(0, rank * n, n), named + "reduce_scatter in place");

    at::Tensor all = values(rank, n, dtype);
    group.all_reduce(all, op, label)->wait();
    same(all, expected_reduction(world, n, dtype, op), named + "all_reduce");
  }
  for (int root = 0; root < world; ++root) {
    at::Tensor tensor = values(rank, n, dtype);
    group.broadcast(tensor, root, label)->wait();
    same(tensor, values(root, n, dtype), what + "broadcast from " + std::to_string(root));
  }
}

TEST_P(Contract, EveryDtypeIsExactAtSmallAndOddSizes) {
  all_well([](Collectives& group) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const std::int64_t n : {1, 2, 7, 4097}) check_exact(group, n, dtype);
    }
  });
}

TEST_P(Contract, LargeTensorsAreExact) {
  all_well([](Collectives& group) {
    check_exact(group, 400'001, at::kFloat);
    check_exact(group, 300'003, at::kBFloat16);
    check_exact(group, 200'007, at::kHalf);
  });
}

TEST_P(Contract, EmptyTensorsAreAllowed) {
  all_well([](Collectives& group) {
    at::Tensor empty = at::empty({0}, at::kFloat);
    group.all_gather(empty, empty, {})->wait();
    group.reduce_scatter(empty, empty, Op::Sum, {})->wait();
    group.all_reduce(empty, Op::Sum, {})->wait();
    group.all_to_all(at::empty({0}), empty, {})->wait();
    group.broadcast(empty, 1, {})->wait();
    group.all_gather(std::span<const ChunkPair>(), {})->wait();
  });
}

TEST_P(Contract, ManyOperationsInFlightKeepTheirOrder) {
  all_well([](Collectives& group) {
    constexpr int kOperations = 60;
    const int world = group.world();
    std::vector<at::Tensor> outputs;
    std::vector<WorkPtr> works;
    for (int i = 0; i < kOperations; ++i) {
      const std::int64_t n = 100 + i * 37;
      outputs.push_back(at::zeros({world * n}, at::kFloat));
      works.push_back(group.all_gather(outputs.back(), values(group.rank() + i, n, at::kFloat),
                                       {Traffic::Parameters, "layer"}));
    }
    for (int i = kOperations - 1; i >= 0; --i) {
      works[static_cast<std::size_t>(i)]->wait();
      const std::int64_t n = 100 + i * 37;
      for (int rank = 0; rank < world; ++rank) {
        same(outputs[static_cast<std::size_t>(i)].narrow(0, rank * n, n),
             values(rank + i, n, at::kFloat), "operation " + std::to_string(i));
      }
    }
    // Each runs after the one before: no wait is needed between operations on one tensor.
    at::Tensor power = at::ones({1000}, at::kLong);
    WorkPtr last;
    for (int i = 0; i < 5; ++i) last = group.all_reduce(power, Op::Sum, {});
    last->wait();
    require(last->done(), "a waited operation is not done");
    const auto expected = static_cast<std::int64_t>(std::pow(world, 5));
    same(power, at::full({1000}, expected, at::kLong), "chained all_reduce");
    require(group.counters().in_flight_max <= kOperations + 1, "in flight: too many counted");
  });
}

TEST_P(Contract, ABatchOfChunksIsOneOperation) {
  all_well([](Collectives& group) {
    const int rank = group.rank();
    const int world = group.world();
    std::vector<ChunkPair> gathers, reductions;
    const std::int64_t sizes[] = {16, 1000, 16384, 3};
    for (const std::int64_t n : sizes) {
      gathers.push_back({at::zeros({world * n}, at::kBFloat16), values(rank, n, at::kBFloat16)});
      reductions.push_back({at::zeros({n}, at::kFloat), values(rank, world * n, at::kFloat)});
    }
    const WorkPtr reduce =
        group.reduce_scatter(reductions, Op::Sum, {Traffic::Gradients, "layer 1"});
    const WorkPtr gather = group.all_gather(gathers, {Traffic::Parameters, "layer 0"});
    gather->wait();
    reduce->wait();
    for (std::size_t i = 0; i < std::size(sizes); ++i) {
      const std::int64_t n = sizes[i];
      same(gathers[i].out, expected_gather(world, n, at::kBFloat16), "batched gather");
      same(reductions[i].out,
           expected_reduction(world, world * n, at::kFloat, Op::Sum).narrow(0, rank * n, n),
           "batched reduction");
    }
    require(group.counters().of(Kind::AllGather).calls == 1, "a batch is one call");
    require(group.counters().of(Kind::AllGather).chunks == 4, "of four chunks");
  });
}

TEST_P(Contract, CountersFollowTheRingFormulas) {
  all_well([](Collectives& group) {
    const std::int64_t world = group.world();
    const std::int64_t n = 120;  // divisible by 2, 3 and 4
    at::Tensor whole = at::zeros({world * n}, at::kBFloat16);
    at::Tensor part = at::zeros({n}, at::kBFloat16);
    at::Tensor vector = at::zeros({n}, at::kFloat);
    group.all_gather(whole, part, {Traffic::Parameters, "a"})->wait();
    group.reduce_scatter(part, whole, Op::Sum, {Traffic::Gradients, "b"})->wait();
    group.all_reduce(vector, Op::Sum, {Traffic::Moments, "c"})->wait();
    group.broadcast(vector, 0, {Traffic::Control, "d"})->wait();
    group.barrier({Traffic::Control, "e"})->wait();
    const Counters counters = group.counters();
    require(counters.of(Traffic::Parameters).bytes == n * (world - 1) * 2, "all_gather");
    require(counters.of(Traffic::Gradients).bytes == n * (world - 1) * 2, "reduce_scatter");
    require(counters.of(Traffic::Moments).bytes == 2 * n * (world - 1) / world * 4, "all_reduce");
    require(counters.of(Traffic::Control).bytes == n * (world - 1) / world * 4, "broadcast");
    require(counters.of(Traffic::Control).calls == 2, "calls");
    require(counters.of(Kind::Barrier).calls == 1, "barriers");
    group.all_to_all(at::empty_like(whole), whole, {Traffic::Gradients, "f"})->wait();
    require(group.counters().of(Kind::AllToAll).bytes == n * (world - 1) * 2, "all_to_all");
    require(counters.in_flight_max == 1, "one at a time");
  });
}

/// Random values: equal to gloo bit for bit where there is one order to add two numbers, else
/// within the rounding of world additions.
class AgainstGloo : public Contract {};

TEST_P(AgainstGloo, RandomSumsAgreeWithTheOracle) {
  const auto texts = run_ranks(GetParam().world, [&](const Seat& seat) {
    const auto group = seat.join(GetParam().backend, 300s, 0);
    const auto oracle = seat.join("gloo", 300s, 1);
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      at::manual_seed(1234 + static_cast<std::uint64_t>(seat.rank));
      const std::int64_t n = 20'011;
      const at::Tensor in = at::randn({seat.world * n}, at::kDouble).to(dtype);
      at::Tensor found = at::empty({n}, dtype), expected = at::empty({n}, dtype);
      group->reduce_scatter(found, in.clone(), Op::Sum, {})->wait();
      oracle->reduce_scatter(expected, in.clone(), Op::Sum, {})->wait();
      at::Tensor found_all = in.clone(), expected_all = in.clone();
      group->all_reduce(found_all, Op::Sum, {})->wait();
      oracle->all_reduce(expected_all, Op::Sum, {})->wait();
      const std::string what = at::toString(dtype);
      if (seat.world == 2) {
        same(found, expected, what + " reduce_scatter");
        same(found_all, expected_all, what + " all_reduce");
        continue;
      }
      const double epsilon = dtype == at::kFloat      ? 0x1p-23
                             : dtype == at::kDouble   ? 0x1p-52
                             : dtype == at::kBFloat16 ? 0x1p-7
                                                      : 0x1p-10;
      const double bound = seat.world * 4 * epsilon;  // of sums whose terms are below 4 or so
      const auto error = [](const at::Tensor& a, const at::Tensor& b) {
        return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
      };
      require(error(found, expected) <= bound, what + " reduce_scatter is off");
      require(error(found_all, expected_all) <= bound, what + " all_reduce is off");
      // All ranks hold the same bits.
      at::Tensor first = found_all.clone();
      group->broadcast(first, 0, {})->wait();
      same(found_all, first, what + " all_reduce, rank 0 against this rank");
    }
    group->shutdown();
    oracle->shutdown();
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "");
}

TEST_P(Contract, EveryOperationIsNotedWhileItWaitsAndWhenItHasEnded) {
  const auto texts = run_ranks(GetParam().world, [&](const Seat& seat) {
    using State = FlightOperation::State;
    const auto log = FlightLog::open(-1);
    require(log.has_value(), "no flight log");
    Options options = seat.options(GetParam().backend, 300s);
    options.flight = log->get();
    auto joined = make_collectives(options);
    require(joined.has_value(), "not joined");
    const auto group = std::move(*joined);
    const auto other = seat.join(GetParam().backend, 300s, 1);
    const auto operations = [&] { return flight_picture((*log)->bytes())->operations; };
    at::Tensor out = at::empty({seat.world * 10}), in = at::ones({10});
    group->all_gather(out, in, {Traffic::Parameters, "layer 3"})->wait();
    const auto first = operations();
    require(first.size() == 1 && first[0].sequence == 1 && first[0].kind == "all_gather" &&
                first[0].unit == "layer 3" && first[0].bytes == seat.world * 40 &&
                first[0].state == State::Ended,
            "the all_gather is not noted");
    // Rank 0 looks while the others do not come.
    if (seat.rank != 0) other->barrier({})->wait();
    const auto work = group->barrier({Traffic::Control, "end"});
    if (seat.rank == 0) {
      require(operations().back().kind == "barrier" && operations().back().state == State::Begun,
              "it waits in the barrier");
      other->barrier({})->wait();
    }
    work->wait();
    require(operations().back().state == State::Ended, "the barrier has ended");
    group->shutdown();
    other->shutdown();
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "");
}

INSTANTIATE_TEST_SUITE_P(Backends, Contract,
                         ::testing::ValuesIn(backend_cases(kBackends, {2, 3, 4}, {4, 6})),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Backends, AgainstGloo,
                         ::testing::ValuesIn(backend_cases(std::span(kBackends).subspan(1),
                                                           {2, 3, 4}, {4, 6})),
                         name_of_case);

}  // namespace
}  // namespace dsj::comm

// Hung, dead, missing and confused peers: an error within the timeout that says who, what and when.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/comm/collectives.h"
#include "tests/engine/comm/ranks.h"

namespace dsj::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing_support::require;
using testing_support::run_ranks;
using testing_support::Seat;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Waits for the error of `work` and fails the rank with its text, if it came within `limit`.
void report_failure(const WorkPtr& work, double limit_seconds) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    work->wait();
  } catch (const CollectiveError& error) {
    require(seconds_since(begin) < limit_seconds,
            "the error came after " + std::to_string(seconds_since(begin)) + " s");
    throw;
  }
  throw std::runtime_error("the operation did not fail");
}

struct Case {
  std::string backend;
  int world;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.backend << c.world; }
};
class Failure : public ::testing::TestWithParam<Case> {};

TEST_P(Failure, HungPeerTimesOut) {
  const auto texts = run_ranks(
      GetParam().world,
      [&](const Seat& seat) {
        const auto group = seat.join(GetParam().backend, 1500ms);
        at::Tensor tensor = at::ones({100'000});
        group->all_reduce(tensor, Op::Sum, {Traffic::Gradients, "layer 2"})->wait();
        if (seat.rank == 1) pause();
        report_failure(group->all_reduce(tensor, Op::Sum, {Traffic::Gradients, "layer 3"}), 4.0);
      },
      {1});
  EXPECT_THAT(texts[0], StartsWith("rank 0: all_reduce #2 (layer 3) timed out after 1."));
  for (int rank = 2; rank < GetParam().world; ++rank) {
    // The first to give up closes its connections: the others may see that instead.
    EXPECT_THAT(texts[static_cast<std::size_t>(rank)],
                StartsWith("rank " + std::to_string(rank) + ": all_reduce #2 (layer 3) "));
  }
}

TEST_P(Failure, DeadPeerIsNoticedLongBeforeTheTimeout) {
  const auto texts = run_ranks(
      GetParam().world,
      [&](const Seat& seat) {
        const auto group = seat.join(GetParam().backend, 60s);
        at::Tensor whole = at::ones({seat.world * 50'000});
        at::Tensor part = whole.narrow(0, seat.rank * 50'000, 50'000);
        group->all_gather(whole, part, {Traffic::Parameters, "layer 2"})->wait();
        if (seat.rank == 1) raise(SIGKILL);
        report_failure(group->all_gather(whole, part, {Traffic::Parameters, "layer 3"}), 10.0);
      },
      {1});
  for (int rank = 0; rank < GetParam().world; ++rank) {
    if (rank == 1) continue;
    EXPECT_THAT(texts[static_cast<std::size_t>(rank)],
                StartsWith("rank " + std::to_string(rank) + ": all_gather #2 (layer 3) failed: "));
  }
}

TEST_P(Failure, LaterOperationsFailWithTheFirstError) {
  const auto texts = run_ranks(
      GetParam().world,
      [&](const Seat& seat) {
        const auto group = seat.join(GetParam().backend, 60s);
        group->barrier({Traffic::Control, "start"})->wait();
        if (seat.rank == 1) raise(SIGKILL);
        at::Tensor tensor = at::ones({10});
        const WorkPtr first = group->all_reduce(tensor, Op::Sum, {Traffic::Control, "norm"});
        const WorkPtr second = group->barrier({Traffic::Control, "end"});
        try {
          second->wait();
          require(false, "the second did not fail");
        } catch (const CollectiveError& error) {
          require(error.facts().sequence == 2 && error.facts().unit == "norm", error.what());
        }
        try {
          group->shutdown();
          require(false, "shutdown kept the failure to itself");
        } catch (const CollectiveError& error) {
          require(error.facts().sequence == 2, error.what());
        }
      },
      {1});
  for (int rank = 0; rank < GetParam().world; ++rank) {
    if (rank == 1) continue;
    EXPECT_EQ(texts[static_cast<std::size_t>(rank)], "");
  }
}

TEST_P(Failure, MissingPeerIsNamed) {
  const int world = GetParam().world;
  const auto texts = run_ranks(world, [&](const Seat& seat) {
    if (seat.rank == seat.world - 1) return;
    const auto begin = std::chrono::steady_clock::now();
    const auto group = make_collectives(seat.options(GetParam().backend, 1500ms));
    require(!group.has_value(), "joined without the last rank");
    require(group.error().kind == ErrorKind::Transient, "a restart can help");
    require(seconds_since(begin) < 6.0, "it took " + std::to_string(seconds_since(begin)) + " s");
    throw std::runtime_error(group.error().message);
  });
  EXPECT_THAT(texts[0], AllOf(StartsWith("rank 0: rank " + std::to_string(world - 1)),
                              HasSubstr("did not join within 1.")));
}

TEST_P(Failure, AbsentMasterIsNamed) {
  const auto texts = run_ranks(GetParam().world,
                               [&](const Seat& seat) {
                                 if (seat.rank == 0) {
                                   ::close(seat.listeners[0].fd);
                                   pause();
                                 }
                                 Options options = seat.options(GetParam().backend, 1500ms);
                                 const auto group = make_collectives(options);
                                 require(!group.has_value(), "joined without rank 0");
                                 throw std::runtime_error(group.error().to_string());
                               },
                               {0});
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    EXPECT_THAT(texts[rank], HasSubstr("rank " + std::to_string(rank) + " did not reach rank 0"));
  }
}

TEST_P(Failure, AbortEndsWhatIsUnderWay) {
  const auto texts = run_ranks(GetParam().world, [&](const Seat& seat) {
    const auto group = seat.join(GetParam().backend, 3s);
    at::Tensor tensor = at::ones({10});
    if (seat.rank != 0) {
      report_failure(group->barrier({Traffic::Control, "end"}), 10.0);
    }
    const WorkPtr work = group->barrier({Traffic::Control, "end"});
    const WorkPtr stuck = group->all_reduce(tensor, Op::Sum, {Traffic::Control, "norm"});
    group->abort("stopped by a signal");
    try {
      stuck->wait();
    } catch (const CollectiveError& error) {
      require(std::string(error.what()).find("stopped by a signal") != std::string::npos,
              error.what());
      return;
    }
    require(false, "the operation did not fail");
  });
  EXPECT_EQ(texts[0], "");
}

TEST_P(Failure, DifferentCallsAreToldApart) {
  if (GetParam().backend == "gloo") GTEST_SKIP() << "gloo cannot see it";
  const auto texts = run_ranks(GetParam().world, [&](const Seat& seat) {
    const auto group = seat.join(GetParam().backend, 5s);
    at::Tensor tensor = at::ones({12'000});
    at::Tensor part = at::ones({12'000 / seat.world});
    const WorkPtr work =
        seat.rank == 1 ? group->reduce_scatter(part, tensor, Op::Sum, {Traffic::Gradients, "odd"})
                       : group->all_gather(tensor, part, {Traffic::Parameters, "even"});
    report_failure(work, 4.0);
  });
  EXPECT_THAT(texts[1], AllOf(StartsWith("rank 1: reduce_scatter #1 (odd) failed: "),
                              HasSubstr("all_gather #1 (even)")));
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* backend : {"gloo"}) {
    for (const int world : {2, 4}) all.push_back({backend, world});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Backends, Failure, ::testing::ValuesIn(cases()), [](const auto& info) {
  return info.param.backend + std::to_string(info.param.world);
});

TEST(Join, RanksThatWantDifferentBackendsAreRefused) {
  const auto texts = run_ranks(2, [](const Seat& seat) {
    const auto group = make_collectives(seat.options(seat.rank == 0 ? "gloo" : "ring", 5s));
    require(!group.has_value(), "joined");
    require(group.error().kind == ErrorKind::BadInput, "wrong kind");
    throw std::runtime_error(group.error().message);
  });
  EXPECT_EQ(texts[0], "rank 0 wants backend gloo, rank 1 ring");
  EXPECT_EQ(texts[1], "rank 1 wants backend ring, rank 0 gloo");
}

TEST(Join, UnknownBackendIsBadInput) {
  const auto group = make_collectives({.rank = 0, .world = 2, .backend = "mpi"});
  ASSERT_FALSE(group.has_value());
  EXPECT_EQ(group.error().kind, ErrorKind::BadInput);
  EXPECT_THAT(group.error().to_string(), HasSubstr("one of auto, gloo, ring, shm, nccl"));
}

TEST(Join, PortInUseIsAnEnvironmentError) {
  const auto texts = run_ranks(1, [](const Seat& seat) {
    Options options = seat.options("gloo", 2s);
    options.world = 2;
    options.store_listen_fd = -1;  // the seat's listener holds the port
    const auto group = make_collectives(options);
    require(!group.has_value(), "bound a port in use");
    require(group.error().kind == ErrorKind::Environment, group.error().to_string());
  });
  EXPECT_EQ(texts[0], "");
}

}  // namespace
}  // namespace dsj::comm

// Hung, dead, missing and confused peers: an error within the timeout that says who, what and when.
#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include <sstream>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "engine/comm/collectives.h"
#include "engine/comm/nccl.h"
#include "engine/comm/ring_links.h"
#include "tests/engine/comm/backend_cases.h"
#include "tests/engine/comm/ranks.h"

namespace dsj::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing_support::backend_cases;
using testing_support::BackendCase;
using testing_support::kBackends;
using testing_support::kNever;
using testing_support::name_of_case;
using testing_support::require;
using testing_support::run_ranks;
using testing_support::Seat;

/// A timeout that has to pass: ranks of a busy machine join within it.
constexpr auto kShort = 4s;

/// Waits for the error of `work` and fails the rank with its text.
void report_failure(const WorkPtr& work) {
  work->wait();
  throw std::runtime_error("the operation did not fail");
}

class Failure : public ::testing::TestWithParam<BackendCase> {};

TEST_P(Failure, HungPeerTimesOut) {
  const auto texts = run_ranks(
      GetParam().world,
      [&](const Seat& seat) {
        const auto group = seat.join(GetParam().backend, kShort);
        at::Tensor tensor = at::ones({100'000});
        group->all_reduce(tensor, Op::Sum, {Traffic::Gradients, "layer 2"})->wait();
        if (seat.rank == 1) pause();
        report_failure(group->all_reduce(tensor, Op::Sum, {Traffic::Gradients, "layer 3"}));
      },
      {1});
  if (GetParam().world == 2) {
    EXPECT_THAT(texts[0], StartsWith("rank 0: all_reduce #2 (layer 3) timed out after "));
  }
  for (int rank = 0; rank < GetParam().world; ++rank) {
    if (rank == 1) continue;
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    EXPECT_THAT(text, StartsWith("rank " + std::to_string(rank) + ": all_reduce #2 (layer 3) "));
    // The first to give up leaves the group, and others may see that first; ours say why it left.
    if (GetParam().backend != "gloo") {
      EXPECT_THAT(text, HasSubstr(" timed out after "));
    }
  }
}

TEST_P(Failure, DeadPeerIsNoticedLongBeforeTheTimeout) {
  const auto texts =
      run_ranks(GetParam().world,
                [&](const Seat& seat) {
                  const auto group = seat.join(GetParam().backend, kNever);
                  at::Tensor whole = at::ones({seat.world * 50'000});
                  at::Tensor part = whole.narrow(0, seat.rank * 50'000, 50'000);
                  group->all_gather(whole, part, {Traffic::Parameters, "layer 2"})->wait();
                  if (seat.rank == 1) raise(SIGKILL);
                  report_failure(group->all_gather(whole, part, {Traffic::Parameters, "layer 3"}));
                },
                {1});
  for (int rank = 0; rank < GetParam().world; ++rank) {
    if (rank == 1) continue;
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    EXPECT_THAT(text,
                StartsWith("rank " + std::to_string(rank) + ": all_gather #2 (layer 3) failed: "));
    if (GetParam().backend != "gloo") {
      EXPECT_THAT(text, HasSubstr("rank 1 "));
    }
  }
}

TEST_P(Failure, LaterOperationsFailWithTheFirstError) {
  const auto texts = run_ranks(
      GetParam().world,
      [&](const Seat& seat) {
        const auto group = seat.join(GetParam().backend, kNever);
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

TEST_P(Failure, AbortEndsWhatIsUnderWay) {
  const bool levels = GetParam().backend == "hierarchical";
  const auto texts = run_ranks(
      levels ? 4 : 2,
      [&](const Seat& seat) {
        // Gloo hears of it only when its own timeout has passed.
        const auto group =
            seat.join(GetParam().backend, GetParam().backend == "gloo" ? kShort : kNever);
        if (seat.rank > 0) pause();
        at::Tensor tensor = at::ones({10});
        const WorkPtr stuck = group->all_reduce(tensor, Op::Sum, {Traffic::Control, "norm"});
        const WorkPtr queued = group->barrier({Traffic::Control, "end"});
        group->abort("stopped by a signal");
        if (GetParam().backend != "gloo") report_failure(stuck);
        report_failure(queued);
      },
      levels ? std::set<int>{1, 2, 3} : std::set<int>{1});
  if (GetParam().backend == "gloo") {
    EXPECT_THAT(texts[0], StartsWith("rank 0: all_reduce #1 (norm) "));
  } else {
    EXPECT_EQ(texts[0], "rank 0: all_reduce #1 (norm) stopped by a signal");
  }
}

class OursOnly : public Failure {};  // what gloo cannot see

TEST_P(OursOnly, DifferentCallsAreToldApart) {
  const auto texts = run_ranks(GetParam().world, [&](const Seat& seat) {
    const auto group = seat.join(GetParam().backend, kNever);
    at::Tensor tensor = at::ones({12'000});
    at::Tensor part = at::ones({12'000 / seat.world});
    const WorkPtr work =
        seat.rank == 1 ? group->reduce_scatter(part, tensor, Op::Sum, {Traffic::Gradients, "odd"})
                       : group->all_gather(tensor, part, {Traffic::Parameters, "even"});
    report_failure(work);
  });
  EXPECT_THAT(texts[1], AllOf(StartsWith("rank 1: reduce_scatter #1 (odd) failed: "),
                              HasSubstr("all_gather #1 (even)")));
}

TEST_P(OursOnly, AnIdleRankThatAbortsIsNoticed) {
  const auto texts = run_ranks(GetParam().backend == "hierarchical" ? 4 : 2,
                               [&](const Seat& seat) {
                                 const auto group = seat.join(GetParam().backend, kNever);
                                 if (seat.rank == 1) {
                                   group->abort("stopped by a signal");
                                   pause();
                                 }
                                 report_failure(group->barrier({Traffic::Control, "end"}));
                               },
                               {1});
  EXPECT_EQ(texts[0],
            "rank 0: barrier #1 (end) failed: rank 1 left the group: stopped by a signal");
}

INSTANTIATE_TEST_SUITE_P(Backends, Failure,
                         ::testing::ValuesIn(backend_cases(kBackends, {2, 4}, {4})), name_of_case);
INSTANTIATE_TEST_SUITE_P(Backends, OursOnly,
                         ::testing::ValuesIn(backend_cases(std::span(kBackends).subspan(1), {2, 4},
                                                           {4})),
                         name_of_case);

TEST(Join, RanksThatWantDifferentBackendsAreRefused) {
  const auto texts = run_ranks(2, [](const Seat& seat) {
    const auto group = make_collectives(seat.options(seat.rank == 0 ? "gloo" : "ring", kNever));
    require(!group.has_value(), "joined");
    require(group.error().kind == ErrorKind::BadInput, "wrong kind");
    throw std::runtime_error(group.error().message);
  });
  EXPECT_EQ(texts[0], "rank 0 wants backend gloo, rank 1 ring");
  EXPECT_EQ(texts[1], "rank 1 wants backend ring, rank 0 gloo");
}

/// Each side has a backend of its own, in which it would wait for the others.
TEST(Join, RanksWithAndWithoutAGpuAreRefused) {
  const auto texts = run_ranks(3, [](const Seat& seat) {
    provide_nccl([](Rendezvous&) -> Result<std::unique_ptr<Collectives>> {
      return fail(ErrorKind::Internal, "went on alone");
    });
    Options options = seat.options("auto", kNever);
    if (seat.rank == 1) options.device = at::Device(at::kCUDA, 0);
    const auto group = make_collectives(options);
    require(!group.has_value(), "joined");
    require(group.error().kind == ErrorKind::Environment, "wrong kind");
    throw std::runtime_error(group.error().message);
  });
  EXPECT_EQ(texts[0], "rank 0 trains on the CPU, rank 1 on a GPU");
  EXPECT_EQ(texts[1], "rank 1 trains on a GPU, rank 0 on the CPU");
  EXPECT_EQ(texts[2], "rank 2 trains on the CPU, rank 1 on a GPU");
}

TEST(Join, AutoIsSharedMemoryOnOneHost) {
  const auto texts = run_ranks(3, [](const Seat& seat) {
    const auto group = seat.join("auto", kNever);
    require(group->backend() == "shm", std::string(group->backend()));
    group->barrier({})->wait();
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "");
}

/// Ranks 1 and 2 of three share a host, rank 0 is elsewhere: all must come to the same verdict.
TEST(Join, AutoIsTheRingWhenOneRankIsElsewhere) {
  const auto texts = run_ranks(3, [](const Seat& seat) {
    if (seat.rank == 0) {
      require(unshare(CLONE_NEWPID) == 0, "no privilege");
      const pid_t child = fork();  // the first process of the new namespace
      if (child != 0) {
        int status = 0;
        waitpid(child, &status, 0);
        require(status == 0, "rank 0 failed in its own namespace");
        return;
      }
    }
    try {
      const auto group = seat.join("auto", kNever);
      require(group->backend() == "ring", std::string(group->backend()));
      at::Tensor sum = at::ones({3});
      group->all_reduce(sum, Op::Sum, {})->wait();
      require(sum[2].item<float>() == 3, "wrong sum");
    } catch (const std::exception& error) {
      if (seat.rank == 0) _exit(1);
      throw;
    }
    if (seat.rank == 0) _exit(0);
  });
  if (texts[0] == "no privilege") GTEST_SKIP() << "needs the privilege to make a PID namespace";
  for (const std::string& text : texts) EXPECT_EQ(text, "");
}

TEST(Join, MissingPeerIsNamed) {
  const int world = 4;
  const auto texts = run_ranks(world, [&](const Seat& seat) {
    if (seat.rank == seat.world - 1) return;
    const auto group = make_collectives(seat.options("auto", kShort));
    require(!group.has_value(), "joined without the last rank");
    require(group.error().kind == ErrorKind::Transient, "a restart can help");
    throw std::runtime_error(group.error().message);
  });
  EXPECT_THAT(texts[0], AllOf(StartsWith("rank 0: rank " + std::to_string(world - 1)),
                              HasSubstr("did not join within ")));
}

TEST(Join, AbsentMasterIsNamed) {
  const auto texts = run_ranks(4,
                               [&](const Seat& seat) {
                                 if (seat.rank == 0) {
                                   ::close(seat.listeners[0].fd);
                                   pause();
                                 }
                                 Options options = seat.options("auto", kShort);
                                 const auto group = make_collectives(options);
                                 require(!group.has_value(), "joined without rank 0");
                                 throw std::runtime_error(group.error().to_string());
                               },
                               {0});
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    EXPECT_THAT(texts[rank], HasSubstr("rank " + std::to_string(rank) + " did not reach rank 0"));
  }
}

TEST(Join, UnknownBackendIsBadInput) {
  const auto group = make_collectives({.rank = 0, .world = 2, .backend = "mpi"});
  ASSERT_FALSE(group.has_value());
  EXPECT_EQ(group.error().kind, ErrorKind::BadInput);
  EXPECT_THAT(group.error().to_string(),
              HasSubstr("one of auto, gloo, ring, shm, hierarchical, nccl"));
}

TEST(Join, NcclAndCpuTensorsDoNotMeet) {
  for (const int world : {1, 2}) {
    const auto group = make_collectives({.rank = 0, .world = world, .backend = "nccl"});
    ASSERT_FALSE(group.has_value());
    EXPECT_EQ(group.error().kind, ErrorKind::Environment);
    EXPECT_EQ(group.error().message, "backend nccl needs tensors on a CUDA device");
  }
}

/// A machine with one GPU has no other way to try NCCL. (The group is refused: a build for the CPU cannot have one.)
TEST(Join, OneRankTakesNcclByName) {
  provide_nccl([](Rendezvous& rendezvous) -> Result<std::unique_ptr<Collectives>> {
    return fail(ErrorKind::Environment,
                "NCCL, a world of " + std::to_string(rendezvous.options().world));
  });
  const testing_support::Listener listener;
  const auto group = make_collectives({.master_port = listener.port,
                                       .store_listen_fd = dup(listener.fd),
                                       .timeout = kNever,
                                       .backend = "nccl",
                                       .device = at::Device("cuda:0")});
  provide_nccl(nullptr);
  ASSERT_FALSE(group.has_value());
  EXPECT_EQ(group.error().message, "NCCL, a world of 1");
}

TEST(Join, CudaTensorsAreRefusedWithoutThePlugin) {
  const auto group = make_collectives({.rank = 0, .world = 2, .device = at::Device("cuda:0")});
  ASSERT_FALSE(group.has_value());
  EXPECT_EQ(group.error().kind, ErrorKind::Environment);
  EXPECT_THAT(group.error().message, HasSubstr("libdsj_cuda.so is not open"));
}

TEST(Join, PortInUseIsAnEnvironmentError) {
  const auto texts = run_ranks(1, [](const Seat& seat) {
    Options options = seat.options("gloo", kShort);
    options.world = 2;
    options.store_listen_fd = -1;  // the seat's listener holds the port
    const auto group = make_collectives(options);
    require(!group.has_value(), "bound a port in use");
    require(group.error().kind == ErrorKind::Environment, group.error().to_string());
  });
  EXPECT_EQ(texts[0], "");
}

/// Connects to the listener that rank 0 tells of, before rank 1 does.
Fd silent_stranger(Rendezvous& rendezvous) {
  const auto told = rendezvous.store()->get("dsj/comm/ring/0");
  std::istringstream place(std::string(told.begin(), told.end()));
  std::string word, port, host;
  place >> word >> port >> host;
  sockaddr_in to{.sin_family = AF_INET,
                 .sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)))};
  require(inet_pton(AF_INET, host.c_str(), &to.sin_addr) == 1, "no address");
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  require(connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0,
          "no connection");
  return fd;
}

// A port scanner, for example.
TEST(Join, AStrangerWhoSaysNothingHoldsNobodyUp) {
  const auto texts = run_ranks(2, [](const Seat& seat) {
    const auto rendezvous = Rendezvous::open(seat.options("ring", kNever));
    require(rendezvous.has_value(), "no rendezvous");
    Fd stranger;
    if (seat.rank == 1) stranger = silent_stranger(**rendezvous);
    const auto links = connect_ring(**rendezvous);
    require(links.has_value(), links ? "" : links.error().to_string());
    require((*rendezvous)->finish().has_value(), "no end");
  });
  EXPECT_THAT(texts, ::testing::Each(""));
}

}  // namespace
}  // namespace dsj::comm

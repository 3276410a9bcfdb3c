// Who hangs, and where, by what real ranks of two levels noted in their flight logs: ranks 0 and 1 on
// one host, 2 and 3 on another. Their agents' judgement of it is agent/diagnose/stall.h.
#include "agent/diagnose/stall.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <fstream>
#include <thread>

#include "agent/diagnose/wait_graph.h"
#include "job/flight_log.h"
#include "tests/engine/comm/ranks.h"

namespace dsj::comm {
namespace {

using namespace std::chrono_literals;
using agent::RankLook;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_support::require;
using testing_support::run_ranks;
using testing_support::Seat;

constexpr int kWorld = 4;

/// The ranks' flight logs, and what they tell each other, in memory that all processes see.
struct Shared {
  struct Words {
    std::atomic<int> pid[kWorld];
    std::atomic<bool> seen;
  };
  Shared()
      : words(static_cast<Words*>(
            mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    for (int& fd : fds) {
      fd = memfd_create("flight", MFD_CLOEXEC);
      require(fd >= 0 && ftruncate(fd, FlightLog::kBytes) == 0, "no memory for a flight log");
    }
  }
  ~Shared() {
    for (const int fd : fds) close(fd);
    munmap(words, 4096);
  }
  /// What an agent sees of its rank. `see_stops`: also that its process is stopped.
  RankLook look(int rank, bool see_stops) const {
    std::string bytes(FlightLog::kBytes, '\0');
    require(pread(fds[rank], bytes.data(), bytes.size(), 0) == ssize_t(bytes.size()), "no bytes");
    return agent::look_at(bytes, see_stops && is_stopped(rank), flight_clock());
  }
  bool is_stopped(int rank) const {
    std::ifstream stat("/proc/" + std::to_string(words->pid[rank]) + "/stat");
    std::string text;
    std::getline(stat, text);
    return text.find(") T ") != std::string::npos;
  }

  Words* const words;
  int fds[kWorld];
};

std::unique_ptr<Collectives> join_noted(const Seat& seat, FlightLog& flight) {
  Options options = seat.options("hierarchical", 300s);
  options.flight = &flight;
  options.splits = true;
  return testing_support::joined(options);
}

template <typename Is>
void wait_until(const Is& is) {
  while (!is()) std::this_thread::sleep_for(1ms);
}

bool is_inside(const RankLook& look, const std::string& group, const std::string& kind) {
  return std::ranges::any_of(look.groups, [&](const agent::GroupLook& one) {
    return one.name == group && inside(one) && one.begun.back().kind == kind;
  });
}

/// Of every rank, once none of them has moved for some looks.
std::vector<RankLook> looks_at_rest(const Shared& shared, bool see_stops) {
  std::vector<RankLook> before;
  for (int quiet = 0; quiet < 50;) {
    std::vector<RankLook> looks;
    for (int rank = 0; rank < kWorld; ++rank) looks.push_back(shared.look(rank, see_stops));
    const bool rest =
        !before.empty() && std::ranges::equal(before, looks, std::not_fn(agent::moved));
    quiet = rest ? quiet + 1 : 0;
    before = std::move(looks);
    std::this_thread::sleep_for(10ms);
  }
  return before;
}

/// Rank 3 stops in the outer ring of an all_gather. Its message says where each one is.
TEST(TwoLevelsStall, ARankThatStopsInTheOuterRingIsNamedWithItsRail) {
  const Shared shared;
  const auto texts = run_ranks(
      kWorld,
      [&](const Seat& seat) {
        shared.words->pid[seat.rank] = getpid();
        const auto flight = FlightLog::open(shared.fds[seat.rank]);
        require(flight.has_value(), "no flight log");
        (*flight)->enter(FlightPhase::Training, 41);
        const auto group = join_noted(seat, **flight);
        group->barrier({})->wait();
        // Rank 1 comes last: until then rank 3 cannot go on in their ring.
        if (seat.rank == 1) wait_until([&] { return shared.is_stopped(3); });
        at::Tensor out = at::empty({kWorld * 1000}), in = at::ones({1000});
        const auto work = group->all_gather(out, in, {Traffic::Parameters, "layer 3"});
        if (seat.rank == 3) {
          wait_until([&] { return is_inside(shared.look(3, false), "rail 1", "begin"); });
          raise(SIGSTOP);
        }
        if (seat.rank != 0) {
          wait_until([&] { return shared.words->seen.load(); });
          group->abort("the test is over");
          return;
        }
        // A rank that does not move may only have had no turn yet: where each of them ends is waited for.
        wait_until([&] {
          return is_inside(shared.look(1, false), "rail 1", "all_gather") &&
                 is_inside(shared.look(2, false), "host 2", "all_gather") && shared.is_stopped(3);
        });
        const auto stopped = agent::judge_stall(looks_at_rest(shared, true));
        const auto frozen = agent::judge_stall(looks_at_rest(shared, false));
        shared.words->seen = true;
        group->abort("the test is over");
        throw std::runtime_error(stopped.message + "|" + stopped.collective + "|" +
                                 agent::ranks_list(stopped.ranks) + "\n" + frozen.message + "|" +
                                 frozen.collective + "|" + agent::ranks_list(frozen.ranks));
      },
      {3});
  EXPECT_THAT(texts[0], HasSubstr("rank 3 is stopped (SIGSTOP): it is in step 41, training, in "
                                  "all_gather #2 (layer 3, 16000 bytes) for "));
  EXPECT_THAT(texts[0],
              HasSubstr(", there in begin #3 (layer 3, 0 bytes) of rail 1 (ranks 1 and 3)"));
  EXPECT_THAT(texts[0], HasSubstr("; ranks 0-2 wait in all_gather #2 (layer 3, 16000 bytes)"));
  EXPECT_THAT(texts[0], HasSubstr("|all_gather #2 (layer 3, 16000 bytes)|3\n"));
  // A rank that hangs otherwise is found by who has not come to which part.
  const std::string frozen = texts[0].substr(texts[0].find('\n') + 1);
  EXPECT_THAT(frozen,
              HasSubstr("rank 3 did not arrive: it is in step 41, training, in all_gather"));
  EXPECT_THAT(frozen, HasSubstr("; rank 1 waits in all_gather #4 (layer 3, 8000 bytes) of rail 1 "
                                "(ranks 1 and 3)"));
  EXPECT_THAT(frozen, HasSubstr("; rank 2 waits in all_gather #2 (layer 3, 16000 bytes) of host 2 "
                                "(ranks 2-3)"));
  EXPECT_TRUE(frozen.ends_with("|3")) << frozen;
}

/// Rank 3 never comes to a collective of a part, and the world waits behind it.
TEST(TwoLevelsStall, AGroupOfASplitIsNamedWithTheRankThatDidNotCome) {
  const Shared shared;
  const auto texts = run_ranks(kWorld, [&](const Seat& seat) {
    const auto flight = FlightLog::open(shared.fds[seat.rank]);
    require(flight.has_value(), "no flight log");
    const auto group = join_noted(seat, **flight);
    auto half = group->split({"half", seat.rank % 2, 0});
    require(half.has_value(), "not split");
    (*half)->barrier({})->wait();
    if (seat.rank != 3)
      (void)(*half)->all_reduce(at::ones({64}), Op::Sum, {Traffic::Control, "norm"});
    if (seat.rank == 0 || seat.rank == 2) (void)group->barrier({Traffic::Control, "end"});
    if (seat.rank == 0) {
      const auto waits = [&](int rank) { return inside(shared.look(rank, false)); };
      wait_until([&] {
        return waits(0) && waits(2) && !waits(3) &&
               is_inside(shared.look(1, false), "half", "all_reduce");
      });
      const auto stall = agent::judge_stall(looks_at_rest(shared, false));
      shared.words->seen = true;
      (*half)->abort("over");
      group->abort("over");
      throw std::runtime_error(stall.message + "|" + agent::ranks_list(stall.ranks));
    }
    wait_until([&] { return shared.words->seen.load(); });
    (*half)->abort("over");
    group->abort("over");
  });
  EXPECT_THAT(texts[0], HasSubstr("rank 3 did not arrive"));
  EXPECT_THAT(texts[0], HasSubstr("; rank 1 waits in all_reduce #2 (norm, 256 bytes) of half "
                                  "(ranks 1 and 3)"));
  EXPECT_TRUE(texts[0].ends_with("|3")) << texts[0];
}

}  // namespace
}  // namespace dsj::comm

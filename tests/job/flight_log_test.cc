// What a rank notes is what its agent reads, also while it writes and after it froze or died.
#include "job/flight_log.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace dsj {
namespace {

using State = FlightOperation::State;

/// Memory as an agent makes it.
struct Memory {
  Memory() : fd(memfd_create("flight", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd, FlightLog::kBytes), 0);
  }
  ~Memory() { close(fd); }
  std::string read() const {
    std::string bytes(FlightLog::kBytes, '\0');
    EXPECT_EQ(pread(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return bytes;
  }
  int fd;
};

std::unique_ptr<FlightLog> open(int fd) {
  auto log = FlightLog::open(fd);
  EXPECT_TRUE(log) << log.error().to_string();
  return std::move(*log);
}

FlightPicture picture(std::string_view bytes) {
  auto read = flight_picture(bytes);
  EXPECT_TRUE(read) << read.error().to_string();
  return read.value_or(FlightPicture{});
}

TEST(FlightLog, ShowsWhereTheRankIsAndItsLastCollectives) {
  const auto log = open(-1);
  EXPECT_EQ(picture(log->bytes()).phase, FlightPhase::Starting);
  log->enter(FlightPhase::Training, 7);
  log->issued(1, "all_gather", "layer 3", 4096);
  log->issued(2, "reduce_scatter", "layer 3", 8192);
  log->issued(3, "barrier", "", 0);
  log->ended();
  const FlightPicture seen = picture(log->bytes());
  EXPECT_EQ(seen.phase, FlightPhase::Training);
  EXPECT_EQ(seen.step, 7);
  EXPECT_EQ(seen.issued, 3u);
  EXPECT_EQ(seen.ended, 1u);
  ASSERT_EQ(seen.operations.size(), 3u);
  EXPECT_EQ(seen.operations[0].state, State::Ended);
  EXPECT_EQ(seen.operations[0].kind, "all_gather");
  EXPECT_EQ(seen.operations[0].unit, "layer 3");
  EXPECT_EQ(seen.operations[0].bytes, 4096);
  EXPECT_EQ(seen.operations[1].state, State::Begun) << "it begins when the one before has ended";
  EXPECT_EQ(seen.operations[2].state, State::Issued);
  EXPECT_GE(seen.operations[1].changed_ns, seen.operations[0].changed_ns);
}

TEST(FlightLog, TicksAndPhasesAreMovement) {
  const auto log = open(-1);
  const uint64_t before = picture(log->bytes()).ticks;
  log->tick();
  log->enter(FlightPhase::Evaluating, 7);
  EXPECT_EQ(picture(log->bytes()).ticks, before + 2);
}

TEST(FlightLog, TheRunningCollectiveIsNeverOverwrittenByThoseBehindIt) {
  const auto log = open(-1);
  for (uint64_t i = 1; i <= 1000; ++i) log->issued(i, "all_gather", "layer", 1);
  const auto shown = [&](uint64_t sequence) {
    for (const auto& operation : picture(log->bytes()).operations) {
      if (operation.sequence == sequence) return operation.state;
    }
    return State::Issued;
  };
  for (uint64_t i = 1; i <= 1000; ++i) {
    ASSERT_EQ(shown(i), State::Begun) << i;
    log->ended();
    ASSERT_EQ(shown(i), State::Ended) << i;
  }
  EXPECT_EQ(picture(log->bytes()).ended, 1000u);
  log->ended();  // nothing is under way: no harm
}

TEST(FlightLog, LongNamesAreCut) {
  const auto log = open(-1);
  log->issued(1, std::string(100, 'k'), std::string(100, 'u'), 1);
  const auto seen = picture(log->bytes()).operations.at(0);
  EXPECT_EQ(seen.kind, std::string(15, 'k'));
  EXPECT_EQ(seen.unit, std::string(47, 'u'));
}

TEST(FlightLog, GroupsOfRanksHaveOperationsOfTheirOwn) {
  const auto log = open(-1);
  log->issued(1, "all_gather", "layer 3", 4096);
  const FlightGroup rail{.id = 7, .name = "rail 1", .members = "1+2x2", .within = 0},
      half{.id = 8, .name = std::string(60, 'h'), .members = std::string(128, '1')};
  auto first = log->group(rail);
  const auto second = log->group(half);
  ASSERT_TRUE(first && second);
  first->issued(1, "begin", "layer 3", 0);
  first->ended();
  first->issued(2, "all_gather", "layer 3", 2048);
  for (uint64_t i = 1; i <= 9; ++i) second->issued(i, "barrier", "", 0);
  {
    const FlightWait world(log.get(), 2), in_rail(first.get(), 3);
    const FlightPicture seen = picture(log->bytes());
    EXPECT_EQ(seen.waits_for, 2);
    EXPECT_EQ(seen.issued, 1u) << "the world's alone";
    ASSERT_EQ(seen.groups.size(), 2u);
    EXPECT_EQ(seen.groups[0].group, rail);
    EXPECT_EQ(seen.groups[0].issued, 2u);
    EXPECT_EQ(seen.groups[0].ended, 1u);
    EXPECT_EQ(seen.groups[0].waits_for, 3);
    ASSERT_EQ(seen.groups[0].operations.size(), 2u);
    EXPECT_EQ(seen.groups[0].operations[1].state, State::Begun);
    EXPECT_EQ(seen.groups[1].group, (FlightGroup{.id = 8, .name = std::string(47, 'h')}))
        << "a rule is never cut";
    EXPECT_EQ(seen.groups[1].operations.front().sequence, 1u) << "those behind do not cover it";
  }
  EXPECT_EQ(picture(log->bytes()).waits_for, -1);
  EXPECT_EQ(picture(log->bytes()).groups[0].waits_for, -1);
  first.reset();
  ASSERT_EQ(picture(log->bytes()).groups.size(), 1u) << "it ended";
  std::vector<std::unique_ptr<FlightLog>> more;
  for (size_t i = 1; i < FlightLog::kGroups; ++i) more.push_back(log->group({.id = 100 + i}));
  EXPECT_TRUE(more.back());
  EXPECT_FALSE(log->group({.id = 99})) << "there is no room";
  more.pop_back();
  EXPECT_TRUE(log->group({.id = 99}));
}

TEST(FlightLog, ATornGroupIsLeftOut) {
  const auto log = open(-1);
  const auto group = log->group({.id = 7, .name = "rail 1", .members = "1+2x2", .within = 0});
  std::string torn(log->bytes());
  torn[torn.find("rail 1")] ^= 1;
  EXPECT_TRUE(picture(torn).groups.empty());
}

TEST(FlightLog, OtherBytesAreRefused) {
  EXPECT_FALSE(flight_picture(""));
  EXPECT_FALSE(flight_picture(std::string(FlightLog::kBytes, '\0'))) << "not opened yet";
  const auto log = open(-1);
  std::string bytes(log->bytes());
  bytes[7] = '1';
  EXPECT_FALSE(flight_picture(bytes)) << "another version";
  EXPECT_FALSE(flight_picture(log->bytes().substr(1)));
}

TEST(FlightLog, ATornRecordIsLeftOut) {
  const auto log = open(-1);
  log->issued(1, "all_gather", "layer 3", 4096);
  log->issued(2, "barrier", "", 0);
  const std::string whole(log->bytes());
  const size_t unit = whole.find("layer 3");
  ASSERT_NE(unit, std::string::npos);
  for (size_t byte = 0; byte < 7; ++byte) {
    std::string torn = whole;
    torn[unit + byte] ^= 1;
    const FlightPicture seen = picture(torn);
    ASSERT_EQ(seen.operations.size(), 1u);
    EXPECT_EQ(seen.operations[0].kind, "barrier");
  }
}

TEST(FlightLog, AReaderBesideAWriterSeesWholeRecordsOnly) {
  const Memory memory;
  const auto log = open(memory.fd);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (uint64_t i = 1; i <= 50'000; ++i) {
      log->issued(i, i % 2 ? "all_gather" : "barrier", std::to_string(i), static_cast<int64_t>(i));
      log->ended();
    }
    done = true;
  });
  bool last = false;
  while (!last) {
    last = done;
    for (const auto& operation : picture(memory.read()).operations) {
      ASSERT_EQ(operation.unit, std::to_string(operation.sequence));
      ASSERT_EQ(operation.bytes, static_cast<int64_t>(operation.sequence));
      ASSERT_EQ(operation.kind, operation.sequence % 2 ? "all_gather" : "barrier");
    }
  }
  writer.join();
  EXPECT_EQ(picture(memory.read()).ended, 50'000u);
}

TEST(FlightLog, IsReadAfterItsRankDied) {
  const Memory memory;
  const pid_t rank = fork();
  if (rank == 0) {
    const auto log = FlightLog::open(memory.fd);
    if (!log) _exit(1);
    (*log)->enter(FlightPhase::Training, 9);
    (*log)->issued(1, "all_gather", "head", 10);
    _exit(0);
  }
  int status = 1;
  ASSERT_EQ(waitpid(rank, &status, 0), rank);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(picture(memory.read()).step, 9);
  EXPECT_EQ(picture(memory.read()).operations.at(0).unit, "head");
}

/// Some nanoseconds in which only the calling thread did anything.
int64_t passes() {
  const int64_t start = flight_clock();
  while (flight_clock() < start + 1'000'000) {
  }
  return flight_clock() - start;
}

TEST(FlightLog, CountsTheTimeOfStepsAndOfTheirCollectives) {
  const auto log = open(-1);
  log->issued(1, "barrier", "", 0);  // before the first step: not counted
  passes();
  log->ended();
  log->enter(FlightPhase::Reading, 1);
  const int64_t alone = passes();
  log->enter(FlightPhase::Training, 1);
  log->issued(2, "all_gather", "layer 0", 64);
  log->issued(3, "all_gather", "layer 1", 64);
  int64_t together = passes();
  log->ended();
  together += passes();
  log->ended();
  EXPECT_EQ(picture(log->bytes()).steps, 0) << "it is not over";
  log->issued(4, "broadcast", "", 64);  // ends behind the step
  log->enter(FlightPhase::Saving, 1);
  passes();
  log->ended();
  log->enter(FlightPhase::Evaluating, 1);
  passes();
  log->enter(FlightPhase::Reading, 2);
  const FlightPicture seen = picture(log->bytes());
  EXPECT_EQ(seen.steps, 1);
  EXPECT_GE(seen.collective_ns, together);
  EXPECT_GE(seen.step_ns, alone + together);
  EXPECT_GE(seen.step_ns - seen.collective_ns, alone);
  log->enter(FlightPhase::Evaluating, 1);
  const FlightPicture after = picture(log->bytes());
  EXPECT_EQ(after.steps, 1) << "reading is no step";
  EXPECT_EQ(after.collective_ns, seen.collective_ns);
}

TEST(FlightLog, CollectivesSideBySideAndPartsOfOneAreTimedOnce) {
  const auto log = open(-1);
  const auto rail = log->group({.id = 7, .name = "rail 1"});
  log->enter(FlightPhase::Reading, 1);
  log->enter(FlightPhase::Training, 1);
  const int64_t begun = flight_clock();
  log->issued(1, "all_gather", "", 64);
  int64_t together = 0;
  for (uint64_t part = 1; part <= 2; ++part) {
    rail->issued(part, "all_gather", "", 64);
    together += passes();
    rail->ended();
  }
  log->ended();
  const int64_t ended = flight_clock();
  passes();
  const int64_t counted = picture(log->bytes()).collective_ns;
  EXPECT_GE(counted, together);
  EXPECT_LE(counted, ended - begun);
}

TEST(FlightLog, NoSuchMemoryIsAnError) {
  const auto log = FlightLog::open(1 << 20);
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().kind, ErrorKind::Environment);
}

TEST(FlightLog, EveryPhaseHasAName) {
  for (int phase = 0; phase < kFlightPhases; ++phase) {
    EXPECT_STRNE(name_of(static_cast<FlightPhase>(phase)), "");
  }
}

}  // namespace
}  // namespace dsj

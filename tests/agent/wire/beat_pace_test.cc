#include "agent/wire/transport.h"

#include <gtest/gtest.h>

#include <set>

namespace dsj::agent {
namespace {

double in_a_second(int workers, Time wait) {
  return workers * 1000.0 / static_cast<double>(wait.count());
}

TEST(BeatPace, AGangOfAnySizeStaysBelowTheSameNumberOfBeats) {
  for (const int workers : {1, 2, 64, 512, 2048, 4096}) {
    SCOPED_TRACE(workers);
    EXPECT_LE(in_a_second(workers, soon_beat(workers)), kSoonBeatsMax);
    EXPECT_LE(in_a_second(workers, steady_beat(workers)), kSteadyBeatsMax);
  }
  EXPECT_EQ(soon_beat(2), Time(100));
  EXPECT_EQ(steady_beat(512), Time(500));
  // Well below the ten seconds after which ranks are killed (pod_config).
  EXPECT_LE(steady_beat(4096), Time(2100));
  EXPECT_EQ(steady_beat(65536), Time(3000));
}

TEST(BeatPace, ASlowWorkerZeroIsWaitedForLonger) {
  EXPECT_EQ(patience(Time(5000), 0), Time(5000));
  EXPECT_EQ(patience(Time(5000), 1), Time(10'000));
  EXPECT_EQ(patience(Time(5000), 2), Time(20'000));
  EXPECT_EQ(patience(Time(5000), 1000), Time(20'000));
}

TEST(BeatPace, WorkersThatNobodyAnswersTryMoreAndMoreRarely) {
  for (const int workers : {2, 512, 4096}) {
    SCOPED_TRACE(workers);
    double tries = 0;
    for (int worker = 0; worker < workers; ++worker) {
      EXPECT_LE(next_try(worker, workers, 1), Time(200));
      EXPECT_GE(next_try(worker, workers, 1), Time(100));
      double waits = 0;
      for (int failures = 20; failures < 120; ++failures) {
        waits += static_cast<double>(next_try(worker, workers, failures).count());
      }
      tries += 100 * 1000 / waits;
    }
    EXPECT_LE(tries, std::max(kTriesMax * 1.1, workers * 1000 / 250.0));
  }
  EXPECT_LE(next_try(1, 2, 1000), Time(500)) << "two workers lose no time";
}

TEST(BeatPace, NotAllComeAtOnce) {
  std::set<Time> waits;
  for (int worker = 1; worker < 512; ++worker) waits.insert(next_try(worker, 4096, 20));
  EXPECT_GT(waits.size(), 256u);
}

TEST(BeatPace, TurnsTakeTheSamePartOfASecond) {
  for (const int workers : {512, 2048, 4096}) {
    EXPECT_LE(workers * in_a_second(1, turn_pause(workers)), 260'000) << workers;
  }
  EXPECT_EQ(turn_pause(2), Time(0));
}

}  // namespace
}  // namespace dsj::agent

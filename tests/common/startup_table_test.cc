#include "common/startup_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/startup_trace.h"

namespace dsj::startup {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A process that began at `from` ms and had stages of 10 ms, half of it on the processor.
std::string process(const std::string& name, int64_t attempt, int64_t from_ms,
                    const std::vector<std::string>& stages) {
  Trace trace{.process = name, .attempt = attempt, .begin = {.wall_us = from_ms * 1000}};
  Moment end = trace.begin;
  for (const auto& stage : stages) {
    end.wall_us += 10'000;
    end.cpu_us += 5'000;
    trace.stages.push_back({stage, end});
  }
  return to_line(trace);
}

TEST(StartupTable, JoinsTheProcessesOfAStart) {
  const std::string lines = process("dsj", 0, 100, {"checks"}) +
                            process("agent 0", 1, 108, {"settings"}) +
                            process("rank 0", 1, 120, {"rows", "first step"}) +
                            process("rank 1", 1, 125, {"rows", "first step"});
  EXPECT_EQ(table(lines, 1, 2).value_or(""),
            "start of attempt 1, milliseconds\n"
            "  process  stage                     from      wall       cpu\n"
            "  dsj      checks                       0        10         5\n"
            "  agent 0  settings                     8        10         5\n"
            "  rank 0   rows                        20        10         5\n"
            "  rank 0   first step                  30        10         5\n"
            "  rank 1   rows                        25        10         5\n"
            "  rank 1   first step                  35        10         5\n"
            "  all      2 ranks                      0        45        30\n");
}

TEST(StartupTable, ShowsRankZeroAndTheSlowest) {
  const std::string lines = process("rank 2", 1, 9, {"rows"}) + process("rank 0", 1, 5, {"rows"}) +
                            process("rank 1", 1, 50, {"rows"}) +
                            process("agent 1", 1, 1, {"settings"});
  const auto text = table(lines, 1, 3).value_or("");
  EXPECT_THAT(text, HasSubstr("rank 0 "));
  EXPECT_THAT(text, HasSubstr("rank 1 "));
  EXPECT_THAT(text, Not(HasSubstr("rank 2 ")));
  EXPECT_THAT(text, Not(HasSubstr("agent 1 ")));
  EXPECT_THAT(text, HasSubstr("3 ranks                      0        59        20\n"))
      << "their processor time counts";
}

TEST(StartupTable, WaitsForAllRanks) {
  const std::string one = process("rank 0", 1, 5, {"rows"});
  EXPECT_FALSE(table(one, 1, 2));
  EXPECT_FALSE(table("", 1, 0));
  EXPECT_FALSE(table(one + "{\"process\":\"rank 1\",\"att", 1, 2)) << "it is still writing";
  EXPECT_FALSE(table(one + one, 1, 2)) << "the same rank";
}

TEST(StartupTable, ALaterAttemptIsItsOwn) {
  const std::string lines = process("dsj", 0, 0, {"checks"}) + process("rank 0", 4, 10, {"rows"}) +
                            process("agent 0", 5, 500, {"other ranks end", "pause"}) +
                            process("rank 0", 5, 530, {"rows"});
  EXPECT_THAT(table(lines, 4, 1).value_or(""), HasSubstr("dsj "));
  const auto again = table(lines, 5, 1).value_or("");
  EXPECT_THAT(again, Not(HasSubstr("dsj ")));
  EXPECT_THAT(again, HasSubstr("  agent 0  pause                       10        10         5\n"));
  EXPECT_THAT(again, HasSubstr("  all      1 rank                       0        40        15\n"));
  EXPECT_FALSE(table(lines, 6, 1));
}

}  // namespace
}  // namespace dsj::startup

#include "common/startup_trace.h"

#include <gtest/gtest.h>

namespace dsj::startup {
namespace {

struct RecorderTest : testing::Test {
  Moment time{.wall_us = 5'000'000, .cpu_us = 700};
  Recorder recorder{[this] { return time; }};
  void pass(int64_t wall_us, int64_t cpu_us) {
    time.wall_us += wall_us;
    time.cpu_us += cpu_us;
  }
  Trace told(int64_t attempt) { return trace_from_line(recorder.line(attempt)).value(); }
};

TEST(StartupSwitch, IsANumber) {
  EXPECT_EQ(switched_on(""), false);
  EXPECT_EQ(switched_on("0"), false);
  EXPECT_EQ(switched_on("1"), true);
  EXPECT_EQ(switched_on("123456789012"), true);
  for (const char* odd : {"yes", "-1", "1x", " 1", "99999999999999999999"})
    EXPECT_EQ(switched_on(odd), std::nullopt) << odd;
}

TEST_F(RecorderTest, OffItDoesNothing) {
  for (const char* text : {"", "0", "yes"}) {
    recorder.begin("dsj", text);
    recorder.stage_ends("checks");
    recorder.begin_again();
    EXPECT_FALSE(recorder.on());
    EXPECT_EQ(recorder.line(1), "") << text;
    EXPECT_EQ(recorder.for_child(), "");
  }
}

TEST_F(RecorderTest, AStageEndsWhereTheNextBegins) {
  recorder.begin("rank 1", "1");
  recorder.stage_ends("exec and libraries");
  pass(2000, 1500);
  recorder.stage_ends("rows");
  const Trace trace = told(3);
  EXPECT_EQ(trace.process, "rank 1");
  EXPECT_EQ(trace.attempt, 3);
  EXPECT_EQ(trace.begin.wall_us, 5'000'000 - 700) << "when it began to use the processor";
  EXPECT_EQ(trace.begin.cpu_us, 0);
  ASSERT_EQ(trace.stages.size(), 2u);
  EXPECT_EQ(trace.stages[0].name, "exec and libraries");
  EXPECT_EQ(trace.stages[0].end.cpu_us, 700);
  EXPECT_EQ(trace.stages[1].end.wall_us, 5'002'000);
  EXPECT_EQ(trace.stages[1].end.cpu_us, 2200);
}

TEST_F(RecorderTest, AChildBeginsWhenItsParentLaunchedIt) {
  recorder.begin("dsj", "1");
  const std::string launched = recorder.for_child();
  pass(30'000, 0);
  Recorder child([this] { return Moment{time.wall_us, 40}; });
  child.begin("agent 0", launched);
  child.stage_ends("exec and libraries");
  const auto trace = trace_from_line(child.line(1)).value();
  EXPECT_EQ(trace.begin.wall_us, 5'000'000);
  EXPECT_EQ(trace.stages[0].end.wall_us, 5'030'000);
}

TEST_F(RecorderTest, AMomentThatIsStillToComeIsNoneOfThisClock) {
  recorder.begin("rank 0", "9000000");
  EXPECT_TRUE(recorder.on());
  recorder.stage_ends("exec and libraries");
  EXPECT_EQ(told(1).begin.wall_us, 5'000'000 - 700);
}

TEST_F(RecorderTest, ANewAttemptBeginsNow) {
  recorder.begin("agent 0", "1");
  recorder.stage_ends("settings");
  pass(1000, 100);
  recorder.begin_again();
  pass(500, 10);
  recorder.stage_ends("pause");
  const Trace trace = told(2);
  EXPECT_EQ(trace.begin.wall_us, 5'001'000);
  EXPECT_EQ(trace.begin.cpu_us, 800);
  ASSERT_EQ(trace.stages.size(), 1u);
  EXPECT_EQ(trace.stages[0].name, "pause");
}

TEST(StartupLine, WhatIsNoneIsPassedOver) {
  for (const char* odd :
       {"", "{}", "[]", "null", "{\"process\":\"rank 0\"}",
        "{\"process\":\"rank 0\",\"attempt\":1,\"begin\":3,\"stages\":[]}",
        "{\"process\":\"rank "
        "0\",\"attempt\":1,\"begin\":{\"wall_us\":1,\"cpu_us\":1},\"stages\":[7]}",
        "{\"process\":\"rank 0\",\"attempt\":1,\"begin\":{\"wall_us\":1,\"cpu_us\":1},\"stag"})
    EXPECT_FALSE(trace_from_line(odd)) << odd;
}

TEST(StartupClock, GoesForwardForAllProcesses) {
  const Moment first = now(), second = now();
  EXPECT_LE(first.wall_us, second.wall_us);
  EXPECT_LE(first.cpu_us, second.cpu_us);
  EXPECT_GT(second.wall_us, 0);
}

}  // namespace
}  // namespace dsj::startup

#include "cli/run/run_supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>

#include "common/files/memory_files.h"
#include "common/startup_trace.h"
#include "job/contract.h"
#include "tests/cli/fake_agents.h"
#include "tests/cli/written.h"

namespace dsj::cli {
namespace {

using namespace std::chrono_literals;
using namespace dsj::contract;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

struct SupervisorTest : testing::Test {
  static constexpr int kWorkers = 2;
  MemoryFiles files;
  FakeRunClock clock;
  FakeAgents agents{clock, kWorkers};
  std::FILE* out = std::tmpfile();
  std::FILE* err = std::tmpfile();
  agent::AgentConfig config;
  json previous;

  void SetUp() override {
    config.job.name = "quick";
    config.job.output_dir = "/o";
    config.run_dir = "/o/.run";
    config.replicas = kWorkers;
    config.slots = 1;
    config.budget.limit = 2;
    ASSERT_TRUE(files.make_dirs("/o/.run"));
    // A test that does not end the job must not hang.
    agents.forever = [this] {
      ASSERT_LT(clock.time, 1h);
      if (clock.time > 50min) agents.end_all(kExitBadInput);
    };
  }
  void TearDown() override {
    std::fclose(out);
    std::fclose(err);
  }

  bool startup_trace = false;
  std::function<std::vector<std::string>()> when_saved = {};

  int run() {
    SupervisorOptions options{.config = config,
                              .resume_command = "dsj run job.yaml",
                              .previous_status = previous,
                              .startup_trace = startup_trace,
                              .when_saved = when_saved};
    return Supervisor(std::move(options),
                      {.agents = agents, .files = files, .clock = clock, .out = out, .err = err})
        .run();
  }
  void on_turn(std::function<void()> play) { agents.turns.push_back(std::move(play)); }
  void start_attempt(int64_t attempt) {
    agents.tell(report::Attempt{.attempt = attempt, .world_size = 2});
  }
  void end_job(int exit_code, const std::string& reason) {
    agents.tell(report::End{.exit_code = exit_code, .reason = reason, .message = "m"});
    agents.end_all(exit_code);
  }
  json status() {
    const auto text = files.read_all("/o/status.yaml");
    return text ? status_from_text(*text, "status.yaml") : json();
  }
};

TEST_F(SupervisorTest, FollowsAJobToItsEnd) {
  on_turn([&] {
    start_attempt(1);
    agents.tell(report::Resolved{.total_steps = 2});
    agents.tell(report::Step{.step = 1, .loss = 3.5, .tokens_per_second = 100});
    agents.tell(report::Log{.step = 1, .loss = 3.25, .lr = 1e-3});
    agents.reports += "{\"report\":\"step\",\"step\":2,";  // the rest comes with the next turn
  });
  on_turn([&] {
    agents.reports += "\"loss\":2.5}\nnoise\n";
    agents.tell(report::Checkpoint{.step = 2, .path = "/o/checkpoints/2"});
    end_job(kExitDone, "Completed");
  });
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(written(out),
            "attempt 1: 2 ranks\nstep 1/2 loss 3.2500 lr 0.001 100 tok/s\n"
            "saved step 2 (/o/checkpoints/2)\ndone: step 2, loss 2.5000\n");
  EXPECT_EQ(written(err), "");
  EXPECT_EQ(status()["phase"], "Complete");
  EXPECT_EQ(status()["training"]["step"], 2);
  EXPECT_TRUE(agents.strays_killed);
  EXPECT_TRUE(files.read_all("/o/.run/agent.json"));
}

/// dsj run | head: a step is saved, as when the terminal is closed.
TEST_F(SupervisorTest, StopsLikeOnASignalWhenTheOutputsReaderIsGone) {
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::fclose(out);
  out = fdopen(ends[1], "w");
  close(ends[0]);
  on_turn([&] {
    start_attempt(1);
    agents.tell(report::Log{.step = 1, .loss = 3.25});
  });
  for (int i = 0; i < 5; ++i) on_turn([] {});  // the status is written once per second
  on_turn([&] {
    EXPECT_EQ(agents.lives[0].stops, 1);
    EXPECT_EQ(status()["phase"], "Stopping");
    agents.tell(report::Checkpoint{.step = 2, .path = "/o/checkpoints/2"});
    end_job(kExitPreempted, "Preempted");
  });
  EXPECT_EQ(run(), kExitInterrupted);
  EXPECT_EQ(status()["phase"], "Interrupted");
  EXPECT_THAT(written(err), HasSubstr("the reader of the output is gone"));
}

TEST_F(SupervisorTest, NumbersThatAreNotFiniteEndTheRunWithTheirOwnExitCode) {
  on_turn([&] {
    start_attempt(1);
    agents.tell(report::Step{.step = 1, .loss = NAN, .skipped = true, .bad_gradient = "w"});
    agents.tell(report::Log{.step = 1, .loss = NAN, .grad_norm = NAN, .lr = 1e-4});
    end_job(kExitNotFinite, kReasonNotFinite);
  });
  EXPECT_EQ(run(), kExitNotFinite);
  EXPECT_THAT(written(out), HasSubstr("step 1 loss nan lr 0.0001 grad_norm nan skipped: the "
                                      "gradient of w is not finite\n"));
  EXPECT_THAT(written(err), HasSubstr("failed: NotFinite: m"));
  EXPECT_EQ(status()["phase"], "Failed");
  EXPECT_EQ(status()["training"]["loss"], "NaN");
}

TEST_F(SupervisorTest, AnAgentWithoutItsLibrariesIsNotStartedAgain) {
  on_turn([&] { agents.end(0, kExitNotStarted); });
  EXPECT_EQ(run(), kExitEnvironment);
  EXPECT_EQ(agents.lives[0].incarnation, 1);
}

TEST_F(SupervisorTest, WhenSavedIsCalledOnceAtTheFirstCheckpoint) {
  int calls = 0;
  when_saved = [&] {
    ++calls;
    return std::vector<std::string>{"it stays"};
  };
  on_turn([&] {
    start_attempt(1);
    agents.tell(report::Step{.step = 1});
  });
  on_turn([&] {
    EXPECT_EQ(calls, 0);
    for (const int64_t step : {1, 2}) agents.tell(report::Checkpoint{.step = step, .path = "/o/c"});
    end_job(kExitDone, "Completed");
  });
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(written(err), "warning: it stays\n");
}

TEST_F(SupervisorTest, ARunThatFailsBeforeItsFirstCheckpointRemovesNothing) {
  int calls = 0;
  when_saved = [&] { return ++calls, std::vector<std::string>{}; };
  on_turn([&] {
    start_attempt(1);
    end_job(kExitBadInput, "BadInput");
  });
  EXPECT_EQ(run(), kExitBadInput);
  EXPECT_EQ(calls, 0);
}

/// The line of a rank with one stage.
std::string start_of(int rank, int64_t attempt) {
  const startup::Trace trace{.process = "rank " + std::to_string(rank),
                             .attempt = attempt,
                             .stages = {{"first step", {.wall_us = 3000, .cpu_us = 2000}}}};
  return startup::to_line(trace);
}

TEST_F(SupervisorTest, PrintsEachAttemptsStartOnceAllRanksHaveReportedIt) {
  startup_trace = true;
  const auto told = [&](const std::string& lines) {
    ASSERT_TRUE(files.write_atomically("/o/.run/startup.jsonl", lines));
  };
  on_turn([&] {
    start_attempt(1);
    told(start_of(0, 1));
    agents.tell(report::Step{.step = 1});
  });
  on_turn([&] {
    EXPECT_THAT(written(out), Not(HasSubstr("start of attempt 1"))) << "rank 1 has not told it";
    told(start_of(0, 1) + start_of(1, 1));
    agents.tell(report::Step{.step = 2});
    agents.tell(report::Step{.step = 3});
  });
  on_turn([&] {
    start_attempt(2);
    told(start_of(0, 1) + start_of(1, 1) + start_of(0, 2));
    agents.tell(report::Step{.step = 3});
  });
  on_turn([&] {  // the last step, before rank 1 wrote its line
    told(start_of(0, 1) + start_of(1, 1) + start_of(0, 2) + start_of(1, 2));
    end_job(kExitDone, "Completed");
  });
  EXPECT_EQ(run(), 0);
  const std::string text = written(out);
  for (const char* title : {"start of attempt 1, ", "start of attempt 2, "}) {
    const size_t at = text.find(title);
    ASSERT_NE(at, std::string::npos) << text;
    EXPECT_EQ(text.find(title, at + 1), std::string::npos) << "told twice";
  }
}

TEST_F(SupervisorTest, PrintsNoStartTableWithoutARequest) {
  on_turn([&] {
    start_attempt(1);
    ASSERT_TRUE(files.write_atomically("/o/.run/startup.jsonl", start_of(0, 1) + start_of(1, 1)));
    agents.tell(report::Step{.step = 1});
  });
  on_turn([&] { end_job(kExitDone, "Completed"); });
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(written(out), Not(HasSubstr("start of attempt")));
}

TEST_F(SupervisorTest, StatusIsWrittenOncePerSecondDuringSteps) {
  int64_t step = 0, writes = 0;
  std::string before;
  for (int i = 0; i < 50; ++i) {
    on_turn([&] {
      if (step == 0) start_attempt(1);
      agents.tell(report::Step{.step = ++step});
      if (const auto now = files.read_all("/o/status.yaml"); now && *now != before) {
        before = *now;
        ++writes;
      }
    });
  }
  on_turn([&] { end_job(kExitDone, "Completed"); });
  EXPECT_EQ(run(), 0);
  EXPECT_GE(writes, 9) << "ten seconds";
  EXPECT_LE(writes, 12);
}

TEST_F(SupervisorTest, AnAgentZeroThatDiesIsChargedAndReplacedAtOnce) {
  on_turn([&] { start_attempt(1); });
  on_turn([&] { agents.lives[0].exit = agent::ChildExit{0, 11}; });
  for (int i = 0; i < 10; ++i) on_turn([] {});
  on_turn([&] {
    EXPECT_EQ(agents.lives[0].incarnation, 2);
    EXPECT_EQ(status()["restarts"]["total"], 1);
    const json told = json::parse(*files.read_all("/o/.run/agent.json"));
    EXPECT_EQ(told["predecessor"], true);
    EXPECT_EQ(told["lastAttempt"], 1);
    EXPECT_EQ(told["restartsUsed"], 1);
    end_job(kExitDone, "Completed");
  });
  EXPECT_EQ(run(), 0);
  ASSERT_EQ(agents.starts.size(), 3u);
  EXPECT_LT(agents.starts[2].first, 900ms) << "the first restart waits for nothing";
  EXPECT_THAT(written(err), HasSubstr("the agent of worker 0 ended with signal 11"));
  EXPECT_THAT(written(err), HasSubstr("restart 1 of 2 at once, from the start"));
}

TEST_F(SupervisorTest, AnAgentZeroThatDiesAgainIsReplacedAfterAPause) {
  on_turn([&] { start_attempt(1); });
  on_turn([&] { agents.lives[0].exit = agent::ChildExit{0, 11}; });
  on_turn([] {});
  RunClock::Time died{0};
  on_turn([&] {
    died = clock.time;
    agents.lives[0].exit = agent::ChildExit{0, 11};
  });
  for (int i = 0; i < 10; ++i) on_turn([] {});
  on_turn([&] { end_job(kExitDone, "Completed"); });
  EXPECT_EQ(run(), 0);
  ASSERT_EQ(agents.starts.size(), 4u);
  EXPECT_GE(agents.starts[3].first, died + 1s);
  EXPECT_THAT(written(err), HasSubstr("restart 2 of 2 in 1000 ms, from the start"));
}

TEST_F(SupervisorTest, NodesThatDoNotJoinHaveTheirOwnExitCode) {
  on_turn([&] { end_job(agent::kExitNodesMissing, "NodesMissing"); });
  EXPECT_EQ(run(), agent::kExitNodesMissing);
  EXPECT_THAT(written(err), HasSubstr("dsj run: failed: NodesMissing"));
}

TEST_F(SupervisorTest, WithoutBudgetTheJobFailsAndTheOthersAreKilled) {
  config.budget.limit = 0;
  on_turn([&] { start_attempt(1); });
  on_turn([&] { agents.end(0, kExitFailed); });
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(agents.lives[1].kills, 1);
  EXPECT_EQ(status()["phase"], "Failed");
  EXPECT_THAT(written(err), HasSubstr("dsj run: failed: BackoffLimitExceeded"));
  EXPECT_THAT(written(err), HasSubstr("run it again: dsj run job.yaml"));
}

TEST_F(SupervisorTest, OtherAgentsAreRestartedWithoutCharge) {
  on_turn([&] { start_attempt(1); });
  on_turn([&] { agents.end(1, kExitFailed); });
  for (int i = 0; i < 5; ++i) on_turn([] {});
  on_turn([&] { end_job(kExitDone, "Completed"); });
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(agents.lives[1].incarnation, 2);
  EXPECT_EQ(status()["restarts"]["total"], 0);
  EXPECT_THAT(written(err), HasSubstr("it is started again"));
}

TEST_F(SupervisorTest, AnAgentThatCannotStayUpEndsTheJob) {
  agents.forever = [&] {
    if (clock.time < 1h) agents.end(1, kExitFailed);
  };
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(agents.lives[1].incarnation, 11);
  EXPECT_THAT(written(err), HasSubstr("AgentFailed"));
}

TEST_F(SupervisorTest, BadInputOfAnAgentEndsTheJobWithItsLastWords) {
  on_turn([&] { agents.end(0, kExitBadInput); });
  EXPECT_EQ(run(), 2);
  EXPECT_THAT(written(err), HasSubstr("  | one\n  | two\n"));
  EXPECT_THAT(written(err), HasSubstr("its log: /o/logs/agent-0.log"));
  EXPECT_THAT(written(err), Not(HasSubstr("run it again")));
}

TEST_F(SupervisorTest, AnAgentThatCannotBeStartedIsAnEnvironmentError) {
  agents.refuse = true;
  EXPECT_EQ(run(), 3);
  EXPECT_THAT(written(err), HasSubstr("CannotStart"));
}

TEST_F(SupervisorTest, AStopLetsTheRanksSave) {
  on_turn([&] { start_attempt(1); });
  on_turn([&] { agents.stop_requests = 1; });
  for (int i = 0; i < 5; ++i) on_turn([] {});  // the status is written once per second
  on_turn([&] {
    EXPECT_EQ(agents.lives[0].stops, 1);
    EXPECT_EQ(agents.lives[1].stops, 1);
    EXPECT_EQ(status()["phase"], "Stopping");
    agents.tell(report::Checkpoint{.step = 7, .path = "/c/7"});
    end_job(kExitPreempted, "Preempted");
  });
  EXPECT_EQ(run(), 130);
  EXPECT_EQ(agents.lives[0].kills, 0);
  EXPECT_EQ(status()["phase"], "Interrupted");
  EXPECT_THAT(written(err), HasSubstr("to continue from step 7, run it again: dsj run job.yaml"));
}

TEST_F(SupervisorTest, StacksAreRequestedAndTheJobContinues) {
  on_turn([&] { start_attempt(1); });
  on_turn([&] { agents.stacks_requested = true; });
  on_turn([&] {
    EXPECT_EQ(agents.stacks_asked, 1);
    EXPECT_EQ(agents.lives[0].stops, 0);
    end_job(0, "Completed");
  });
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(agents.stacks_asked, 1);
  EXPECT_THAT(written(err), HasSubstr("the stacks of all threads go to "));
}

TEST_F(SupervisorTest, ASecondStopKillsAtOnce) {
  on_turn([&] { start_attempt(1); });
  on_turn([&] { agents.stop_requests = 2; });
  EXPECT_EQ(run(), 130);
  EXPECT_EQ(agents.lives[0].kills, 1);
  EXPECT_EQ(agents.lives[1].kills, 1);
  EXPECT_THAT(written(err), HasSubstr("killed at once; nothing more is saved"));
}

/// Killed ranks report nothing more, but what they or an earlier run had saved is there.
TEST_F(SupervisorTest, AKilledRunContinuesFromTheCheckpointsOnDisk) {
  for (const char* name : {"step-52", "step-7", ".staging-step-101-attempt-2", "kept-step-99"})
    ASSERT_TRUE(files.make_dirs(std::string("/o/checkpoints/") + name));
  on_turn([&] { start_attempt(1); });
  on_turn([&] { agents.stop_requests = 2; });
  EXPECT_EQ(run(), 130);
  EXPECT_THAT(written(err), HasSubstr("to continue from step 52, run it again: dsj run job.yaml"));
}

TEST_F(SupervisorTest, AStopWhileNoAgentRunsEndsTheJob) {
  config.budget.used = 1;  // so that the next life waits
  on_turn([&] { start_attempt(1); });
  on_turn([&] {
    agents.end_all(kExitFailed);
    agents.lives[1].runs = false;
  });
  on_turn([&] { agents.stop_requests = 1; });
  EXPECT_EQ(run(), 130);
  EXPECT_THAT(written(err), HasSubstr("stopped while no agent was running"));
}

TEST_F(SupervisorTest, AgentsThatDoNotEndAfterTheLastReportAreKilled) {
  on_turn([&] {
    start_attempt(1);
    agents.tell(report::End{.exit_code = kExitDone, .reason = "Completed", .message = "m"});
  });
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(agents.lives[0].kills, 1);
  EXPECT_GE(clock.time, 15s);
  EXPECT_LE(clock.time, 17s);
}

TEST_F(SupervisorTest, AStatusThatCannotBeWrittenIsReportedOnce) {
  ASSERT_TRUE(files.make_dirs("/o/status.yaml/in_its_place"));
  on_turn([&] { start_attempt(1); });
  on_turn([&] { agents.tell(report::Checkpoint{.step = 1, .path = "/c/1"}); });
  on_turn([&] { end_job(kExitDone, "Completed"); });
  EXPECT_EQ(run(), 0);
  const std::string said = written(err);
  const size_t first = said.find("warning: ");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(first, said.rfind("warning: "));
}

TEST_F(SupervisorTest, AnEarlierRunsCheckpointCountsForTheBudget) {
  previous = {{"attempt", 3}, {"checkpoint", {{"lastSaved", {{"step", 40}, {"path", "/c/40"}}}}}};
  on_turn([&] { agents.lives[0].exit = agent::ChildExit{0, 9}; });
  for (int i = 0; i < 5; ++i) on_turn([] {});
  on_turn([&] { end_job(kExitDone, "Completed"); });
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(written(err), HasSubstr("from the checkpoint of step 40"));
  EXPECT_EQ(status()["failureHistory"][0]["attempt"], 3);
}

}  // namespace
}  // namespace dsj::cli

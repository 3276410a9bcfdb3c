// Whole agents over fakes: two workers, one memory transport, time by hand.
#include "agent/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "agent/attempt_files.h"
#include "common/files/posix_files.h"
#include "job/contract.h"
#include "job/flight_log.h"
#include "tests/agent/ranks/fake_ranks.h"
#include "tests/agent/wire/memory_transport.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;
namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

struct AgentTest : testing::Test {
  static constexpr int kSlots = 2;
  std::string out = testing::TempDir() + "agent-" + std::to_string(getpid());
  PosixFiles files;
  FakeRanks ranks[2];
  FakeReports reports[2];
  std::shared_ptr<MemoryServer> server = std::make_shared<MemoryServer>();
  MemoryClient client{server};
  std::vector<Agent> agents;
  Time now{1000};

  void SetUp() override {
    fs::remove_all(out);
    fs::create_directories(out + "/logs");
    fs::create_directories(out + "/checkpoints");
    fs::create_directories(out + "/run");
  }
  void TearDown() override { fs::remove_all(out); }

  AgentConfig config() {
    AgentConfig config;
    config.job.name = "test";
    config.job.output_dir = out;
    config.job.ds_config = nlohmann::json::object();
    config.replicas = 2;
    config.slots = kSlots;
    config.run_dir = out + "/run";
    config.key = "k";
    config.rank_command = {"/bin/dsj-train"};
    return config;
  }
  void make(const AgentConfig& config) {
    agents.clear();
    for (int w : {0, 1}) {
      auto agent = Agent::make(config, w, 1,
                               {.ranks = ranks[w],
                                .files = files,
                                .reports = reports[w],
                                .server = w == 0 ? server.get() : nullptr,
                                .client = w == 0 ? nullptr : &client},
                               now);
      ASSERT_TRUE(agent) << agent.error().to_string();
      agents.push_back(std::move(*agent));
    }
  }
  void pass(Time duration) {
    for (const Time end = now + duration; now < end; now += Time(50)) {
      for (auto& agent : agents) {
        if (!agent.exit_code()) agent.turn(now);
      }
    }
  }
  std::vector<FakeRanks::Process*> running(int worker) {
    std::vector<FakeRanks::Process*> result;
    for (auto& [pid, process] : ranks[worker].processes) {
      if (!process.exit) result.push_back(&process);
    }
    return result;
  }
  std::string text(const std::string& name) {
    return files.read_all(out + "/" + name).value_or("(none)");
  }
};

class StoppedAgentTest : public AgentTest {
 protected:
  /// Each rank of both workers was told to stop, and does.
  void every_rank_stops() {
    pass(Time(1000));
    for (int w : {0, 1}) {
      for (auto* process : running(w)) {
        EXPECT_THAT(process->signals, ElementsAre(SIGTERM));
        process->exit = ChildExit{kExitPreempted, 0};
      }
    }
    pass(Time(2000));
  }
};

TEST_F(AgentTest, AFrozenRankIsNamedByItsFlightLogAndAnotherAttemptFollows) {
  AgentConfig quick = config();
  quick.stall = Time(4000);
  make(quick);
  pass(Time(1000));
  std::vector<std::unique_ptr<FlightLog>> logs;
  for (int w : {0, 1}) {
    for (auto* process : running(w)) {
      EXPECT_TRUE(process->start.flies);
      logs.push_back(std::move(*FlightLog::open(-1)));
      logs.back()->enter(FlightPhase::Training, 3);
      const bool frozen = process->start.place.rank == 3;
      if (!frozen) logs.back()->issued(1, "all_gather", "layer 0", 256);
      process->sight = {.flight = std::string(logs.back()->bytes()), .stopped = frozen};
    }
  }
  for (int i = 0; i < 70; ++i) {
    pass(Time(100));
    for (FakeRanks& own : ranks) {
      for (const auto& [rank, pid] : own.asked_stacks) {
        if (!own.stacks) own.stacks.emplace();
        own.stacks->push_back({rank, pid, {{77, "dsj-train", {{"nanosleep", "libc.so"}}, ""}}, ""});
      }
    }
  }
  const auto failure = reports[0].last<report::Failure>();
  EXPECT_EQ(failure.reason, "HangDetected");
  EXPECT_THAT(failure.message, HasSubstr("; rank 3 is in nanosleep (thread 77, dsj-train)"));
  EXPECT_EQ(failure.rank, 3);
  EXPECT_EQ(failure.worker, 1);
  EXPECT_EQ(failure.missing_ranks, "3");
  EXPECT_EQ(failure.collective, "all_gather #1 (layer 0, 256 bytes)");
  EXPECT_THAT(failure.message, HasSubstr("rank 3 is stopped (SIGSTOP): it is in step 3, training"));
  EXPECT_THAT(failure.message, HasSubstr("ranks 0-2 wait in all_gather #1"));
  EXPECT_EQ(text("checkpoints/attempt"), "2\n");
}

TEST_F(AgentTest, EveryAgentLogsTheStacksOfItsRanksWhenSomebodyWantsThem) {
  make(config());
  pass(Time(1000));
  agents[0].want_stacks(1700, now);
  pass(Time(1000));
  for (FakeRanks& own : ranks) {
    ASSERT_EQ(own.asked_stacks.size(), 2u);
    own.stacks.emplace();
    for (const auto& [rank, pid] : own.asked_stacks) {
      own.stacks->push_back({rank, pid, {{77, "dsj-train", {{"wait", "a.so"}}, ""}}, ""});
    }
  }
  testing::internal::CaptureStderr();
  pass(Time(1000));
  const std::string log = testing::internal::GetCapturedStderr();
  for (const char* line : {"stacks #1700: rank 0, process ", "stacks #1700: rank 3, process ",
                           "stacks #1700:   thread 77 dsj-train", "stacks #1700:     wait (a.so)",
                           "stacks #1700: end"}) {
    EXPECT_THAT(log, HasSubstr(line));
  }
  EXPECT_TRUE(ranks[0].asked_stacks.empty());
  EXPECT_EQ(running(0).size(), 2u) << "they go on";
}

TEST_F(AgentTest, StartsEveryRankAfterTheAttemptIsPublished) {
  make(config());
  pass(Time(1000));
  EXPECT_EQ(text("checkpoints/attempt"), "1\n");
  ASSERT_EQ(running(0).size(), 2u);
  ASSERT_EQ(running(1).size(), 2u);
  const RankStart& first = running(0)[0]->start;
  const RankStart& last = running(1)[1]->start;
  EXPECT_EQ(first.place.rank, 0);
  EXPECT_EQ(first.place.store_fd, 77);
  EXPECT_EQ(ranks[0].open_stores, 0) << "rank 0 has the socket now";
  EXPECT_EQ(last.place.rank, 3);
  EXPECT_EQ(last.place.local_rank, 1);
  EXPECT_EQ(last.place.group_rank, 1);
  EXPECT_EQ(last.place.world_size, 4);
  EXPECT_EQ(last.place.store_fd, -1);
  EXPECT_EQ(last.place.master_port, first.place.master_port);
  EXPECT_EQ(last.log_file, out + "/logs/rank-3.log");
  const auto job = job_file_from_json(nlohmann::json::parse(text("run/job-1.json")));
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->attempt, 1);
  EXPECT_EQ(job->world_size, 4);
  EXPECT_EQ(reports[0].last<report::Attempt>().world_size, 4);
}

TEST_F(AgentTest, RankZeroWritesMetricsOthersOnlyTheirStep) {
  make(config());
  pass(Time(1000));
  running(0)[0]->events = "{\"event\":\"step\",\"step\":1,\"loss\":2.5}\nnoise\n{\"event\":\"st";
  running(1)[0]->events = "{\"event\":\"step\",\"step\":1}\n";
  pass(Time(50));
  running(0)[0]->events =
      "ep\",\"step\":2,\"loss\":2.25}\n{\"event\":\"warning\",\"message\":\"w\"}\n";
  pass(Time(50));
  EXPECT_THAT(text("metrics.jsonl"), HasSubstr("{\"step\":1,\"loss\":2.5,"));
  EXPECT_THAT(text("metrics.jsonl"), HasSubstr("\n{\"step\":2,\"loss\":2.25,"));
  EXPECT_EQ(reports[0].last<report::Step>().step, 2);
  EXPECT_EQ(reports[0].last<report::Warning>().message, "w");
  EXPECT_TRUE(reports[1].all.empty());
}

TEST_F(AgentTest, KilledRankEndsTheAttemptWithinSecondsAndTheNextOneFollows) {
  make(config());
  pass(Time(1000));
  running(0)[0]->events =
      "{\"event\":\"step\",\"step\":1}\n{\"event\":\"checkpoint\",\"step\":1,\"path\":\"p\"}\n"
      "{\"event\":\"step\",\"step\":2}\n{\"event\":\"step\",\"step\":3}\n";
  pass(Time(100));
  running(1)[0]->exit = ChildExit{0, SIGKILL};
  pass(Time(2500));
  EXPECT_TRUE(running(0).empty() || running(0)[0]->start.attempt == 2);
  pass(Time(1500));
  ASSERT_EQ(running(0).size(), 2u);
  ASSERT_EQ(running(1).size(), 2u);
  EXPECT_EQ(running(0)[0]->start.attempt, 2);
  EXPECT_EQ(text("checkpoints/attempt"), "2\n");
  const auto failure = reports[0].last<report::Failure>();
  EXPECT_EQ(failure.rank, 2);
  EXPECT_EQ(failure.signal, SIGKILL);
  EXPECT_EQ(failure.last_words, "last words");
  EXPECT_EQ(failure.restart, true);
  EXPECT_EQ(failure.saved_step, 1);
  running(0)[0]->events =
      "{\"event\":\"resumed\",\"step\":1,\"path\":\"p\"}\n"
      "{\"event\":\"step\",\"step\":2,\"loss\":9.0}\n";
  pass(Time(100));
  EXPECT_THAT(text("metrics.jsonl"), HasSubstr("\n{\"step\":2,\"loss\":9.0,"));
  EXPECT_THAT(text("metrics.jsonl"), testing::Not(HasSubstr("\"step\":3")));
}

TEST_F(StoppedAgentTest, StopAtAnyAgentReachesEveryRankAndEndsPreempted) {
  make(config());
  pass(Time(1000));
  running(0)[0]->events = "{\"event\":\"step\",\"step\":1}\n";
  pass(Time(50));
  agents[1].stop(now);
  every_rank_stops();
  EXPECT_EQ(agents[0].exit_code(), kExitPreempted);
  EXPECT_EQ(agents[1].exit_code(), kExitPreempted);
  EXPECT_EQ(reports[0].last<report::End>().reason, "Preempted");
}

TEST_F(StoppedAgentTest, ADepartingWorkerSavesWithAllRanksAndLeavesTheOther) {
  make(config());
  pass(Time(1000));
  running(0)[0]->events = "{\"event\":\"step\",\"step\":1}\n";
  pass(Time(50));
  agents[1].depart(now);
  every_rank_stops();
  EXPECT_EQ(agents[1].exit_code(), kExitPreempted);
  EXPECT_EQ(agents[0].exit_code(), std::nullopt) << "it waits for the successor";
  EXPECT_EQ(text("checkpoints/attempt"), "1\n");
}

TEST_F(AgentTest, ADepartingWorkerZeroLeavesItsSuccessorNothingToWaitFor) {
  make(config());
  pass(Time(1000));
  agents[0].depart(now);
  pass(Time(1000));
  for (int w : {0, 1}) {
    for (auto* process : running(w)) process->exit = ChildExit{kExitPreempted, 0};
  }
  pass(Time(2000));
  EXPECT_EQ(agents[0].exit_code(), kExitPreempted);
  EXPECT_EQ(agents[1].exit_code(), std::nullopt);
  EXPECT_EQ(text("checkpoints/ended"), "1\n");
}

TEST_F(AgentTest, DoneEndsBothAgentsWithZero) {
  make(config());
  pass(Time(1000));
  for (int w : {0, 1}) {
    for (auto* process : running(w)) process->exit = ChildExit{kExitDone, 0};
  }
  pass(Time(2000));
  EXPECT_EQ(agents[0].exit_code(), kExitDone);
  EXPECT_EQ(agents[1].exit_code(), kExitDone);
}

TEST_F(AgentTest, CutNetworkKillsTheRanksAtTheLeaseAndTheyComeBack) {
  make(config());
  pass(Time(1000));
  server->cut = true;
  pass(Time(4500));
  EXPECT_TRUE(running(1).empty()) << "before worker 0 gives them up";
  pass(Time(3000));
  server->cut = false;
  pass(Time(6000));
  EXPECT_EQ(reports[0].last<report::Failure>().reason, "WorkerLost");
  EXPECT_EQ(reports[0].last<report::Failure>().worker, 1);
  ASSERT_EQ(running(1).size(), 2u);
  EXPECT_EQ(running(1)[0]->start.attempt, 2);
}

TEST_F(AgentTest, ProgramThatCannotStartEndsTheJobAsEnvironment) {
  make(config());
  ranks[1].refuse = true;
  pass(Time(4000));
  EXPECT_EQ(agents[0].exit_code(), kExitEnvironment);
  EXPECT_THAT(std::string(reports[0].last<report::End>().message), HasSubstr("/bin/dsj-train"));
}

/// As the loader ends a program whose library is not there.
TEST_F(AgentTest, AProgramWithoutItsLibraryEndsTheJobAsEnvironmentAtOnce) {
  make(config());
  pass(Time(1000));
  for (auto& [pid, process] : ranks[0].processes) process.exit = ChildExit{127, 0};
  pass(Time(8000));
  EXPECT_EQ(agents[0].exit_code(), kExitEnvironment);
  EXPECT_EQ(reports[0].last<report::Failure>().attempt, 1);
  EXPECT_EQ(reports[0].last<report::Failure>().reason, "CannotStart");
  EXPECT_FALSE(reports[0].last<report::Failure>().restart);
  EXPECT_EQ(text("checkpoints/attempt"), "1\n");
}

TEST_F(AgentTest, AUsersOwnFieldsGoOnToTheMetricsFile) {
  make(config());
  pass(Time(1000));
  running(0)[0]->events =
      "{\"event\":\"cut_rows\",\"step\":0,\"rows\":9,\"cut_rows\":3}\n"
      "{\"event\":\"step\",\"step\":1,\"accuracy\":0.5}\n"
      "{\"event\":\"eval\",\"step\":1,\"eval_loss\":2.0,\"bleu\":7}\n"
      "{\"event\":\"step\",\"step\":2,\"accuracy\":0.5}\n";
  pass(Time(50));
  EXPECT_THAT(text("metrics.jsonl"),
              testing::EndsWith("\"host_rss_bytes\":null,\"accuracy\":0.5}\n"));
  EXPECT_THAT(text("metrics.jsonl"),
              HasSubstr("\"host_rss_bytes\":null,\"accuracy\":0.5,\"cut_rows\":3,"));
  EXPECT_THAT(text("metrics.jsonl"), HasSubstr("{\"step\":1,\"eval_loss\":2.0,\"bleu\":7}\n"));
}

TEST_F(AgentTest, AttemptGoesOnFromTheFileAndGarbageInItIsRefused) {
  std::ofstream(out + "/checkpoints/attempt") << "41\n";
  auto with_status = config();
  with_status.last_attempt = 7;
  make(with_status);
  pass(Time(1000));
  EXPECT_EQ(text("checkpoints/attempt"), "42\n");

  // A checkpoint that was copied here from a directory whose attempts were more.
  std::filesystem::create_directories(out + "/checkpoints/step-7");
  std::ofstream(out + "/checkpoints/step-7/manifest.json")
      << "{\"xxh3\":\"0123456789abcdef\",\n\"body\":{\"attempt\":57,\"extents\":[]}}";
  EXPECT_EQ(AttemptFiles(files, out).newest(), 57);
  std::ofstream(out + "/checkpoints/step-7/manifest.json") << "{\"body\":{\"attempt\":\"x\"}}";
  EXPECT_EQ(AttemptFiles(files, out).newest(), 42) << "of no form that is known";
  std::ofstream(out + "/checkpoints/attempt") << "forty\n";
  const auto agent =
      Agent::make(config(), 0, 1, {.ranks = ranks[0], .files = files, .reports = reports[0]}, now);
  ASSERT_FALSE(agent);
  EXPECT_EQ(agent.error().kind, ErrorKind::Environment);
}

TEST_F(AgentTest, ASuccessorWaitsForRanksOnlyWhenSomeMayBeLeft) {
  AgentConfig successor = config();
  successor.predecessor = true;
  make(config());
  pass(Time(1000));
  make(successor);  // the first agents are gone without a word
  pass(successor.silence - Time(1000));
  EXPECT_EQ(text("checkpoints/attempt"), "1\n") << "ranks of attempt 1 may live";
  pass(Time(2000));
  EXPECT_EQ(text("checkpoints/attempt"), "2\n");
  for (auto& agent : agents) agent.stop(now);
  pass(Time(500));
  EXPECT_EQ(text("checkpoints/ended"), "(none)") << "the ranks still save";
  for (int w : {0, 1}) {
    for (auto* process : running(w)) process->exit = ChildExit{kExitPreempted, 0};
  }
  pass(Time(2000));
  EXPECT_EQ(text("checkpoints/ended"), "2\n");
  make(successor);
  pass(Time(1000));
  EXPECT_EQ(text("checkpoints/attempt"), "3\n") << "nobody is waited for";
}

TEST_F(AgentTest, AttemptThatCannotBePublishedStartsNothing) {
  fs::remove_all(out + "/checkpoints");
  std::ofstream(out + "/checkpoints") << "a file in its place";
  auto alone = config();
  alone.replicas = 1;
  auto agent =
      Agent::make(alone, 0, 1, {.ranks = ranks[0], .files = files, .reports = reports[0]}, now);
  if (agent) {
    agents.push_back(std::move(*agent));
    pass(Time(1000));
    EXPECT_EQ(agents[0].exit_code(), kExitEnvironment);
  } else {
    EXPECT_EQ(agent.error().kind, ErrorKind::Environment);
  }
  EXPECT_TRUE(ranks[0].processes.empty());
}

TEST(AgentConfig, RoundTripAndRefusals) {
  AgentConfig config;
  config.job.name = "j";
  config.job.ds_config = {{"zero_optimization", {{"stage", 2}}}};
  config.replicas = 3;
  config.key = "secret";
  config.join_port = 29500;
  config.rank_command = {"a", "b"};
  config.user_program = true;
  config.budget = {.limit = 4, .used = 1, .total = 2, .saved_step = 10};
  config.gather_limit = Time(77'000);
  const auto read = agent_config_from_text(to_text(config), "agent.json");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->replicas, 3);
  EXPECT_EQ(read->join_port, 29500);
  EXPECT_EQ(read->gather_limit, Time(77'000));
  EXPECT_EQ(read->budget.saved_step, 10);
  EXPECT_EQ(read->rank_command, config.rank_command);
  EXPECT_TRUE(read->user_program);
  EXPECT_EQ(read->job.ds_config, config.job.ds_config);
  EXPECT_FALSE(agent_config_from_text("{}", "agent.json"));
  EXPECT_FALSE(agent_config_from_text("", "agent.json"));
  config.lease = config.silence;
  EXPECT_FALSE(agent_config_from_text(to_text(config), "agent.json"));
}

}  // namespace
}  // namespace dsj::agent

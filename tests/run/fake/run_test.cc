// `dsj run` end to end with real agents and fake ranks (rank.cc): processes, signals, files,
// exit codes. What needs the engine is in ../train_run_test.cc.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "test_paths.h"
#include "tests/run/run_support.h"
#include "tests/support/ipv6_only.h"

namespace dsj::run_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class FakeRun : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    variables_["DSJ_TRAIN_PROGRAM"] = std::string(DSJ_BIN_DIR) + "/fake_rank";
  }
};

TEST_F(FakeRun, FinishesWithEveryFileInPlace) {
  write_job({{"maxSteps", "12"}, {"saveSteps", "5"}});
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_EQ(metric_steps(), one_to(12));
  EXPECT_TRUE(fs::exists(out() / "model/config.json"));
  EXPECT_EQ(read_text(out() / "checkpoints/attempt"), "1\n");
  const json status = this->status();
  EXPECT_EQ(status["phase"], "Complete");
  EXPECT_EQ(condition("Complete"), "True");
  EXPECT_EQ(condition("Running"), "False");
  EXPECT_EQ(status["training"]["attempt"], 1);
  EXPECT_EQ(status["training"]["step"], 12);
  EXPECT_EQ(status["training"]["totalSteps"], 12);
  EXPECT_EQ(status["training"]["progressPercentage"], 100);
  EXPECT_EQ(status["training"]["resolvedConfig"]["train_batch_size"], 2);
  EXPECT_EQ(status["training"]["learningRate"], "0.001");
  EXPECT_EQ(status["checkpoint"]["lastSaved"]["step"], 12);
  EXPECT_EQ(status["restarts"]["total"], 0);
  EXPECT_THAT(read_text(out() / "logs/rank-1.log"),
              HasSubstr("attempt 1, rank 1 of 2 ====\nfake rank"));
  EXPECT_THAT(stdout_text(), HasSubstr("\nstep 12/12 loss 0.8333 lr 0.001"));
  EXPECT_THAT(stdout_text(), HasSubstr("done: step 12, loss 0.8333"));
  EXPECT_THAT(stdout_text(), Not(HasSubstr("\r"))) << "a bar where there is no terminal";
  EXPECT_EQ(stderr_text(), "");
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(FakeRun, TheResultInJsonIsAllThatIsOnStdout) {
  write_job({{"maxSteps", "3"}});
  ASSERT_EQ(run({"job.yaml", "-o", "json"}), 0);
  const json result = json::parse(stdout_text());
  EXPECT_EQ(result["outputDir"], out().string());
  EXPECT_EQ(result["model"], (out() / "model").string());
  EXPECT_EQ(result["status"], status());
  EXPECT_THAT(stderr_text(), HasSubstr("done: step 3"));
  ASSERT_EQ(run({"job.yaml", "-o", "json"}), 0);
  EXPECT_EQ(json::parse(stdout_text())["status"]["phase"], "Complete") << "complete already";
  EXPECT_EQ(run({"job.yaml", "-o", "out"}), 2);
  EXPECT_THAT(stderr_text(), HasSubstr("--output DIR names the output directory"));
}

TEST_F(FakeRun, FinishesOnAMachineWithIpv6Alone) {
  const Ipv6Only network;
  if (!network.made()) GTEST_SKIP() << "no network with IPv6 alone can be made here: NOT RUN";
  write_job({{"maxSteps", "6"}}, 2, 1);
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_EQ(metric_steps(), one_to(6));
  EXPECT_EQ(status()["phase"], "Complete");
}

TEST_F(FakeRun, KeyAndRunDirectoryAreForTheOwnerOnly) {
  write_job({{"maxSteps", "2"}});
  ASSERT_EQ(run({"job.yaml"}), 0);
  struct stat info {};
  ASSERT_EQ(stat((out() / ".dsj").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(stat((out() / ".dsj/agent.json").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const std::string key = json::parse(read_text(out() / ".dsj/agent.json"))["key"];
  EXPECT_EQ(key.size(), 64u);
}

TEST_F(FakeRun, TorchrunLine) {
  ASSERT_EQ(run({"--nproc_per_node=2",
                 "--deepspeed",
                 "ds.json",
                 "--model_name_or_path",
                 "model",
                 "--data_path",
                 "data.json",
                 "--output-dir",
                 "out",
                 "--max_steps",
                 "4",
                 "--per_device_train_batch_size",
                 "1",
                 "--evaluation_strategy",
                 "no",
                 "--save_strategy",
                 "steps",
                 "--save_steps",
                 "3000",
                 "--logging_steps",
                 "2"}),
            0);
  EXPECT_EQ(metric_steps(), one_to(4));
  EXPECT_THAT(stdout_text(), HasSubstr("\nstep 4/4 "));
  EXPECT_THAT(stdout_text(), Not(HasSubstr("\nstep 3/4 ")));
}

TEST_F(FakeRun, KilledRankIsNamedAndTheNextAttemptGoesOnFromTheCheckpoint) {
  write_job({{"maxSteps", "400"}, {"saveSteps", "10"}});
  start({"job.yaml"});
  ASSERT_TRUE(soon([&] { return steps_done() >= 25; }));
  kill_rank(1, SIGKILL);
  ASSERT_TRUE(soon([&] { return read_text(out() / "checkpoints/attempt") == "2\n"; }));
  ASSERT_EQ(finish(), 0);
  EXPECT_EQ(metric_steps(), one_to(400)) << "exactly one line per step";
  const json status = this->status();
  EXPECT_EQ(status["training"]["attempt"], 2);
  ASSERT_THAT(status["failureHistory"], SizeIs(1));
  EXPECT_EQ(status["failureHistory"][0]["rank"], 1);
  EXPECT_EQ(status["failureHistory"][0]["signal"], 9);
  EXPECT_EQ(status["restarts"]["total"], 1);
  EXPECT_THAT(stderr_text(), HasSubstr("rank 1 ended with signal 9 (Killed)"));
  EXPECT_THAT(stderr_text(), HasSubstr("restart 1 of 3 at once, from the checkpoint of step "));
  EXPECT_THAT(stdout_text(), HasSubstr("resumed from step "));
  EXPECT_THAT(processes(), IsEmpty());
}

size_t count_of(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST_F(FakeRun, RanksThatFreezeInTurnAreNamedWithTheirCollectiveAndRestartedInPlace) {
  write_job({{"maxSteps", "1000000"}, {"saveSteps", "20"}}, 3, 1, 9);
  variables_["FAKE_STEP_MS"] = "20";
  int placed = 0;
  start({"job.yaml"});
  for (int frozen = 0; frozen < 3; ++frozen) {
    const std::string attempt = std::to_string(frozen + 1) + "\n";
    ASSERT_TRUE(soon([&] { return read_text(out() / "checkpoints/attempt") == attempt; }));
    const int64_t before = steps_done();
    // At first long enough for agent 0 to know how long a step takes.
    ASSERT_TRUE(soon([&] { return steps_done() >= before + (frozen == 0 ? 500 : 25); }));
    kill_rank(frozen, SIGSTOP);
    ASSERT_TRUE(soon([&] { return status()["failureHistory"].size() > size_t(frozen); }));
    const json failure = status()["failureHistory"][frozen];
    EXPECT_EQ(failure["reason"], "HangDetected");
    EXPECT_EQ(failure["rank"], frozen);
    EXPECT_EQ(failure["worker"], frozen);
    EXPECT_EQ(failure["missingRanks"], std::to_string(frozen));
    EXPECT_THAT(std::string(failure["message"]), HasSubstr("rank " + std::to_string(frozen) +
                                                           " is stopped (SIGSTOP): it is in step"));
    EXPECT_THAT(std::string(failure["collective"]), HasSubstr("all_reduce #"));
    placed += std::string(failure["message"]).find("(thread ") != std::string::npos;
  }
  EXPECT_GE(placed, 1) << "stacks that come too late are only in the log";
  ASSERT_TRUE(soon([&] { return read_text(out() / "checkpoints/attempt") == "4\n"; }));
  const int64_t before = steps_done();
  ASSERT_TRUE(soon([&] { return steps_done() >= before + 5; })) << "it trains on";
  kill(pid_, SIGQUIT);  // by hand, of ranks that train on
  for (int worker = 0; worker < 3; ++worker) {
    const fs::path log = out() / ("logs/agent-" + std::to_string(worker) + ".log");
    ASSERT_TRUE(soon([&] { return count_of(read_text(log), ": end\n") == 4; })) << read_text(log);
  }
  const int64_t taken = steps_done();
  ASSERT_TRUE(soon([&] { return steps_done() >= taken + 5; })) << "it trains on";
  EXPECT_THAT(stderr_text(), HasSubstr("the stacks of all threads go to "));
  kill(pid_, SIGINT);
  EXPECT_EQ(finish(), 130);
  EXPECT_EQ(metric_steps(), one_to(status()["checkpoint"]["lastSaved"]["step"]));
  EXPECT_THAT(read_text(out() / "logs/agent-0.log"), HasSubstr("is stopped (SIGSTOP)"));
  for (int worker = 0; worker < 3; ++worker) {
    const std::string log = read_text(out() / ("logs/agent-" + std::to_string(worker) + ".log"));
    for (const char* attempt : {"#1", "#2", "#3"}) {
      EXPECT_THAT(log, HasSubstr(std::string("stacks ") + attempt + ": rank " +
                                 std::to_string(worker) + ", process "));
    }
    EXPECT_THAT(log, HasSubstr("main (fake_rank)"));
  }
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(FakeRun, TwoWorkersJoinOverHttpAndAFailureEndsTheAttemptForAll) {
  write_job({{"maxSteps", "60"}, {"saveSteps", "10"}}, 2, 2);
  variables_["FAKE_FAULT"] = "attempt=1,rank=3,step=25,do=segv";
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_EQ(metric_steps(), one_to(60));
  const json status = this->status();
  EXPECT_EQ(status["workers"], "2/2");
  EXPECT_EQ(status["training"]["attempt"], 2);
  EXPECT_EQ(status["failureHistory"][0]["rank"], 3);
  EXPECT_EQ(status["failureHistory"][0]["worker"], 1);
  EXPECT_EQ(status["failureHistory"][0]["signal"], 11);
  EXPECT_THAT(std::string(status["failureHistory"][0]["lastWords"]), HasSubstr("about to segv"));
  EXPECT_TRUE(fs::exists(out() / "logs/rank-3.log"));
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(FakeRun, KilledAgentIsReplacedAndTheJobGoesOn) {
  for (const int worker : {1, 0}) {
    fs::remove_all(out());
    write_job({{"maxSteps", "1000"}, {"saveSteps", "10"}}, 2, 1);
    start({"job.yaml", "--set", "spec.training.maxSteps=300"});
    ASSERT_TRUE(soon([&] { return steps_done() >= 25; }));
    const std::string flag = std::string("--worker") + '\0' + std::to_string(worker) + '\0';
    const auto agents = processes(flag);
    ASSERT_THAT(agents, SizeIs(1));
    const pid_t rank = rank_process(worker);
    kill(agents[0], SIGKILL);
    ASSERT_TRUE(soon([&] { return kill(rank, 0) != 0; })) << "its rank died with it";
    ASSERT_EQ(finish(), 0) << "worker " << worker;
    EXPECT_EQ(metric_steps(), one_to(300));
    EXPECT_EQ(status()["training"]["attempt"], 2);
    EXPECT_EQ(status()["failureHistory"][0]["reason"], "WorkerLost");
    EXPECT_EQ(status()["failureHistory"][0]["worker"], worker);
  }
}

TEST_F(FakeRun, BudgetEndsTheJobWithOne) {
  write_job({{"maxSteps", "50"}}, 1, 2, 2);
  variables_["FAKE_FAULT"] = "attempt=0,rank=1,step=3,do=exit1";
  EXPECT_EQ(run({"job.yaml"}), 1);
  EXPECT_EQ(read_text(out() / "checkpoints/attempt"), "3\n");
  EXPECT_EQ(status()["phase"], "Failed");
  EXPECT_EQ(condition("Failed"), "True");
  EXPECT_THAT(status()["failureHistory"], SizeIs(3));
  EXPECT_EQ(status()["lastFailure"]["reason"], "TestFault");
  EXPECT_EQ(status()["lastFailure"]["exitCode"], 1);
  EXPECT_THAT(stderr_text(), HasSubstr("BackoffLimitExceeded"));
  EXPECT_THAT(stderr_text(), HasSubstr("  | fake rank: told to fail"));
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(FakeRun, FatalExitsAreNotRetried) {
  for (const auto& [what, code] :
       std::map<std::string, int>{{"exit2", 2}, {"exit3", 3}, {"notfinite", 7}}) {
    fs::remove_all(out());
    write_job({{"maxSteps", "50"}});
    variables_["FAKE_FAULT"] = "attempt=0,rank=1,step=3,do=" + what;
    EXPECT_EQ(run({"job.yaml"}), code);
    EXPECT_EQ(read_text(out() / "checkpoints/attempt"), "1\n");
    EXPECT_EQ(condition("Failed"), "True");
  }
  EXPECT_EQ(status()["lastFailure"]["reason"], "NotFinite");
}

TEST_F(FakeRun, CtrlCSavesOneStepOnAllRanksAndTheSameCommandGoesOn) {
  for (const int number : {SIGINT, SIGTERM}) {
    fs::remove_all(out());
    write_job({{"maxSteps", "500"}, {"saveSteps", "1000"}}, 2, 2);
    start({"job.yaml"});
    ASSERT_TRUE(soon([&] { return steps_done() >= 10; }));
    kill(pid_, number);
    ASSERT_EQ(finish(), 130);
    EXPECT_THAT(processes(), IsEmpty());
    const json status = this->status();
    EXPECT_EQ(status["phase"], "Interrupted");
    const int64_t saved = status["checkpoint"]["lastSaved"]["step"];
    EXPECT_EQ(metric_steps(), one_to(saved));
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_TRUE(fs::exists(out() / "checkpoints" / ("step-" + std::to_string(saved)) /
                             ("rank-" + std::to_string(rank))));
    }
    EXPECT_THAT(stderr_text(), HasSubstr("to continue from step " + std::to_string(saved) +
                                         ", run it again: dsj run job.yaml"));
    ASSERT_EQ(run({"job.yaml", "--set", "spec.training.maxSteps=" + std::to_string(saved + 5)}), 0);
    EXPECT_THAT(stdout_text(), HasSubstr("resumed from step " + std::to_string(saved)));
    EXPECT_EQ(metric_steps(), one_to(saved + 5));
    EXPECT_EQ(read_text(out() / "checkpoints/attempt"), "2\n");
  }
}

TEST_F(FakeRun, SecondCtrlCKillsAtOnce) {
  write_job({{"maxSteps", "5000"}});
  variables_["FAKE_FAULT"] = "attempt=0,rank=0,step=5,do=hang";
  start({"job.yaml"});
  ASSERT_TRUE(soon([&] { return steps_done() >= 5; }));
  kill(pid_, SIGINT);
  ASSERT_TRUE(soon([&] { return stderr_text().find("stopping") != std::string::npos; }));
  kill(pid_, SIGINT);
  EXPECT_EQ(finish(), 130);
  EXPECT_THAT(processes(), IsEmpty());
  EXPECT_THAT(stderr_text(), HasSubstr("killed at once"));
}

TEST_F(FakeRun, NothingStaysBehindWhenDsjRunItselfIsKilled) {
  write_job({{"maxSteps", "5000"}, {"saveSteps", "10000"}}, 2, 1);
  start({"job.yaml"});
  ASSERT_TRUE(soon([&] { return steps_done() >= 5; }));
  kill(pid_, SIGKILL);
  EXPECT_EQ(finish(), -SIGKILL);
  EXPECT_TRUE(soon([&] { return processes().empty(); }));
  const int64_t steps = steps_done();
  EXPECT_TRUE(fs::exists(out() / "checkpoints" / ("step-" + std::to_string(steps))))
      << "they saved";
  ASSERT_EQ(run({"job.yaml", "--set", "spec.training.maxSteps=" + std::to_string(steps + 3)}), 0);
  EXPECT_EQ(metric_steps(), one_to(steps + 3));
}

TEST_F(FakeRun, AKilledDsjLeavesAStatusThatSaysSo) {
  write_job({{"maxSteps", "2000"}, {"saveSteps", "1000"}});
  start({"job.yaml"});
  ASSERT_TRUE(soon([&] { return steps_done() >= 3; }));
  kill(pid_, SIGKILL);
  EXPECT_EQ(finish(), -SIGKILL);
  ASSERT_TRUE(soon([&] { return status().value("phase", "") == "Interrupted"; })) << status();
  EXPECT_EQ(condition("Running"), "False");
  const int64_t saved = status()["checkpoint"]["lastSaved"]["step"];
  EXPECT_GE(saved, 3);
  variables_["FAKE_STEP_MS"] = "0";
  write_job({{"maxSteps", std::to_string(saved + 2)}});
  EXPECT_EQ(run({"job.yaml"}), 0);
  EXPECT_THAT(stdout_text(), HasSubstr("resumed from step " + std::to_string(saved)));
}

TEST_F(FakeRun, AClosedPipeSavesAStepAndSaysSo) {
  write_job({{"maxSteps", "2000"}, {"saveSteps", "1000"}});
  agent::SpawnSpec spec{.environment = environment(), .log_file = at("both")};
  spec.command = {"/bin/sh", "-c",
                  "cd " + folder_.string() + " && \"$0\" run job.yaml 2>stderr | head -n 3",
                  std::string(DSJ_BIN_DIR) + "/dsj"};
  const auto pid = agent::spawn(spec);
  ASSERT_TRUE(pid);
  pid_ = *pid;
  EXPECT_EQ(finish(), 0) << "head's own";
  ASSERT_TRUE(soon([&] { return processes().empty(); }));
  EXPECT_EQ(status()["phase"], "Interrupted");
  EXPECT_EQ(status()["checkpoint"]["lastSaved"]["step"], status()["training"]["step"]);
  EXPECT_LT(steps_done(), 2000);
  EXPECT_THAT(stderr_text(), HasSubstr("the reader of the output is gone"));
}

/// As where the machine loses power: nobody is left to write the end.
TEST_F(FakeRun, ARunWhoseProcessesWereAllKilledIsKnownAsDead) {
  write_job({{"maxSteps", "100000"}, {"saveSteps", "5"}});
  start({"job.yaml"});
  ASSERT_TRUE(soon([&] { return steps_done() >= 12; }));
  kill(pid_, SIGSTOP);  // nobody may see another one die
  for (const int number : {SIGSTOP, SIGKILL})
    for (const pid_t pid : processes()) kill(pid, number);
  EXPECT_NE(finish(), 0);
  ASSERT_TRUE(soon([&] { return processes().empty(); }));
  EXPECT_EQ(status()["phase"], "Running") << "the file as it was left";
  ASSERT_EQ(run({"out", "--ascii", "--watch"}, "plot"), 0) << "the run is over";
  EXPECT_THAT(stdout_text(), HasSubstr("the run was killed with all its processes"));
  write_job({{"maxSteps", "20"}, {"saveSteps", "5"}});
  EXPECT_EQ(run({"job.yaml"}), 0);
  EXPECT_THAT(stderr_text(), HasSubstr("was killed with all its processes"));
  EXPECT_EQ(run({"out", "--ascii"}, "plot"), 0);
  EXPECT_THAT(stdout_text(), Not(HasSubstr("was killed")));
}

TEST_F(FakeRun, AMissingLibraryIsAnEnvironmentErrorAtOnce) {
  write("train",
        "#!/bin/sh\necho 'error while loading shared libraries: libtorch.so' >&2\nexit 127\n");
  fs::permissions(at("train"), fs::perms::owner_all);
  variables_["DSJ_TRAIN_PROGRAM"] = at("train");
  write_job({{"maxSteps", "2"}});
  EXPECT_EQ(run({"job.yaml"}), 3);
  EXPECT_EQ(read_text(out() / "checkpoints/attempt"), "1\n");
  EXPECT_THAT(stderr_text(), HasSubstr("libtorch.so"));
  EXPECT_THAT(stderr_text(), HasSubstr("scripts/setup.sh fetches libtorch"));
  EXPECT_EQ(status()["lastFailure"]["reason"], "CannotStart");

  EXPECT_EQ(run({"--model", "model", "--prompt", "1"}, "generate"), 3);
  EXPECT_THAT(stderr_text(), HasSubstr("error while loading shared libraries: libtorch.so"));
  EXPECT_THAT(stderr_text(), HasSubstr("scripts/setup.sh fetches libtorch"));
  EXPECT_EQ(run({"job.yaml"}, "tune"), 3) << "no trial can be";
  EXPECT_THAT(stderr_text(), HasSubstr("scripts/setup.sh fetches libtorch"));
}

/// The program's own code and its end by a signal are the verb's.
TEST_F(FakeRun, GenerateEndsAsItsProgram) {
  write("train", "#!/bin/sh\n[ \"$5\" = die ] && kill -9 $$\necho \"$@\"\nexit 5\n");
  fs::permissions(at("train"), fs::perms::owner_all);
  variables_["DSJ_TRAIN_PROGRAM"] = at("train");
  EXPECT_EQ(run({"--model", "model", "--prompt", "why"}, "generate"), 5);
  EXPECT_THAT(stdout_text(),
              HasSubstr("generate --model " + at("model").string() + " --prompt why"));
  EXPECT_EQ(run({"--model", "model", "--prompt", "die"}, "generate"), 128 + SIGKILL);
  EXPECT_EQ(run({"--prompt", "model", "--raw", "--model=model"}, "generate"), 5);
  EXPECT_THAT(stdout_text(), HasSubstr("--prompt model --raw --model=" + at("model").string()));
  EXPECT_EQ(run({"--system", "model", "--seed=3", "model"}, "chat"), 5);
  EXPECT_THAT(stdout_text(), HasSubstr("--system model --seed=3 " + at("model").string()));
  EXPECT_EQ(run({"model", "--top-k", "5"}, "chat"), 5);
  EXPECT_THAT(stdout_text(), HasSubstr("chat " + at("model").string() + " --top-k 5"));
}

TEST_F(FakeRun, GrandchildrenOfARankAreSweptUp) {
  write_job({{"maxSteps", "8"}});
  variables_["FAKE_FAULT"] = "attempt=0,rank=1,step=3,do=child";
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(FakeRun, GarbageInTheEventPipeIsNoHarm) {
  write_job({{"maxSteps", "8"}});
  variables_["FAKE_FAULT"] = "attempt=0,rank=0,step=3,do=garbage";
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_EQ(metric_steps(), one_to(8));
  EXPECT_THAT(read_text(out() / "logs/agent-0.log"),
              HasSubstr("rank 0 wrote a line that is not an event"));
}

TEST_F(FakeRun, SecondRunOnTheSameOutputIsRefusedWithThePid) {
  write_job({{"maxSteps", "5000"}});
  start({"job.yaml"});
  ASSERT_TRUE(soon([&] { return steps_done() >= 3; }));
  const pid_t first = pid_;
  start({"job.yaml"});
  EXPECT_EQ(finish(), 2);
  EXPECT_THAT(stderr_text(), HasSubstr("another dsj run (pid " + std::to_string(first) + ")"));
  kill(first, SIGTERM);
  pid_ = first;
  EXPECT_EQ(finish(), 130);
}

TEST_F(FakeRun, CompleteRunIsNotRepeatedAndMoreStepsGoOn) {
  write_job({{"maxSteps", "6"}});
  ASSERT_EQ(run({"job.yaml"}), 0);
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_THAT(stdout_text(), HasSubstr("this run is complete: all 6 steps are done"));
  EXPECT_EQ(read_text(out() / "checkpoints/attempt"), "1\n");
  ASSERT_EQ(run({"job.yaml", "--set", "spec.training.maxSteps=9"}), 0);
  EXPECT_EQ(metric_steps(), one_to(9));
  EXPECT_EQ(read_text(out() / "checkpoints/attempt"), "2\n");
  EXPECT_EQ(status()["training"]["totalSteps"], 9);
}

TEST_F(FakeRun, OutputOptionAndThreadsAreTold) {
  write_job({{"maxSteps", "3"}});
  ASSERT_EQ(run({"job.yaml", "--output", "elsewhere"}), 0);
  EXPECT_TRUE(fs::exists(at("elsewhere/metrics.jsonl")));
  EXPECT_FALSE(fs::exists(out()));
  EXPECT_THAT(read_text(at("elsewhere/logs/agent-0.log")), HasSubstr("OMP_NUM_THREADS="));
  variables_["OMP_NUM_THREADS"] = "3";
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_THAT(read_text(out() / "logs/rank-0.log"), HasSubstr("OMP_NUM_THREADS=3"));
}

TEST_F(FakeRun, WrongInputIsToldAllAtOnceAndNothingIsWritten) {
  write_job({{"maxSteps", "3"}});
  write("ds.json", R"({"train_micro_batch_size_per_gpu": 1, "zero_optimisation": {"stage": 2}})");
  fs::remove(at("data.json"));
  fs::remove(at("model/config.json"));
  EXPECT_EQ(run({"job.yaml"}), 1);
  EXPECT_FALSE(fs::exists(out()));
  EXPECT_THAT(stderr_text(), HasSubstr("zero_optimization"));
  EXPECT_THAT(stderr_text(), HasSubstr("data.json"));
  EXPECT_THAT(stderr_text(), HasSubstr("config.json"));
  EXPECT_THAT(stderr_text(), HasSubstr("nothing was started"));
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(FakeRun, OtherWrongInputs) {
  write_job({{"maxSteps", "3"}});
  EXPECT_EQ(run({}), 2);
  EXPECT_EQ(run({"nojob.yaml"}), 2);
  EXPECT_EQ(run({"job.yaml", "--max_steps", "4"}), 2);
  EXPECT_THAT(stderr_text(), HasSubstr("--set spec.path=value"));
  EXPECT_EQ(run({"job.yaml", "--output"}), 2);
  EXPECT_EQ(run({"job.yaml", "--set", "spec.training.maxStep=4"}), 1);
  EXPECT_THAT(stderr_text(), HasSubstr("did you mean"));
  EXPECT_EQ(run({"job.yaml", "--set", "spec.training.modelNameOrPath=Qwen/No-Such-Model"}), 1);
  EXPECT_THAT(stderr_text(), HasSubstr("hf download Qwen/No-Such-Model"));
  EXPECT_EQ(run({"job.yaml", "--set", "spec.launcher=Command"}), 1);
  EXPECT_FALSE(fs::exists(out()));
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_THAT(stdout_text(), HasSubstr("usage: dsj run"));
}

TEST_F(FakeRun, HubIdIsFoundInTheCache) {
  const fs::path hub = at("hf/hub/models--Tiny--Model");
  fs::create_directories(hub / "snapshots");
  fs::create_directories(hub / "refs");
  fs::rename(at("model"), hub / "snapshots/abc123");
  write("hf/hub/models--Tiny--Model/refs/main", "abc123");
  variables_["HF_HOME"] = at("hf");
  write_job({{"maxSteps", "2"}});
  EXPECT_EQ(run({"job.yaml", "--set", "spec.training.modelNameOrPath=Tiny/Model"}), 0);
  EXPECT_THAT(read_text(out() / ".dsj/job-0.json"), HasSubstr("snapshots/abc123"));
}

TEST_F(FakeRun, ProgramThatIsMissingIsAnEnvironmentError) {
  write_job({{"maxSteps", "3"}});
  variables_["DSJ_TRAIN_PROGRAM"] = at("nothing");
  EXPECT_EQ(run({"job.yaml"}), 3);
  EXPECT_FALSE(fs::exists(out()));
  // A file that may be executed, yet cannot: found out by the agent.
  write("broken",
        "\x7f"
        "ELF but not really");
  fs::permissions(at("broken"), fs::perms::all);
  variables_["DSJ_TRAIN_PROGRAM"] = at("broken");
  EXPECT_EQ(run({"job.yaml"}), 3);
  EXPECT_THAT(stderr_text(), HasSubstr("broken"));
}

}  // namespace
}  // namespace dsj::run_test

// `dsj run` with launcher: Command: real agents, and a program of the user's own as the ranks.
#include <gmock/gmock.h>

#include "tests/run/run_support.h"

namespace dsj::run_test {
namespace {

using testing::HasSubstr;

class CommandRun : public RunTest {
 protected:
  /// A job whose ranks run `script` in a shell.
  void write_script(const std::string& script, int backoff_limit = 3,
                    const std::string& more = "") {
    write("script.sh", script);
    write("job.yaml",
          "apiVersion: training.dsj.dev/v1alpha1\nkind: DeepSpeedJob\nmetadata: {name: own}\n"
          "spec:\n  launcher: Command\n  backoffLimit: " +
              std::to_string(backoff_limit) + "\n  training: {outputDir: out}\n" + more +
              "  workers:\n    replicas: 2\n    template:\n      spec:\n        containers:\n"
              "          - name: worker\n            image: not-used-here\n"
              "            env:\n              - {name: PLACE, value: " +
              folder_.string() +
              "}\n"
              "              - {name: SCRIPT, value: $(PLACE)/script.sh}\n"
              "            command: [sh, $(SCRIPT)]\n            args: [\"$(PLACE)\", "
              "\"$(DSJ_DS_CONFIG)\", \"$$(PLACE)\"]\n");
  }
  std::string log(int rank) {
    return read_text(out() / "logs" / ("rank-" + std::to_string(rank) + ".log"));
  }
};

TEST_F(CommandRun, EveryRankGetsItsPlaceTheArgumentsAndTheDsConfig) {
  write_script(
      "echo rank $RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE group $GROUP_RANK at "
      "$MASTER_ADDR\n"
      "[ $MASTER_PORT -gt 0 ] && [ \"$2\" = \"$DSJ_DS_CONFIG\" ] && [ \"$3\" = '$(PLACE)' ] && cat "
      "\"$2\"\n",
      3,
      "  deepspeed: {config: {train_micro_batch_size_per_gpu: auto, zero_optimization: {stage: "
      "2}}}\n");
  ASSERT_EQ(run({"job.yaml"}), 0) << stderr_text();
  EXPECT_THAT(log(0), HasSubstr("rank 0/2 local 0/1 group 0 at 127.0.0.1"));
  EXPECT_THAT(log(1), HasSubstr("rank 1/2 local 0/1 group 1 at 127.0.0.1"));
  EXPECT_THAT(log(1), HasSubstr("\"train_micro_batch_size_per_gpu\": \"auto\""));
  EXPECT_EQ(status()["phase"], "Complete");
  EXPECT_THAT(stdout_text(), HasSubstr("done\n"));
  EXPECT_EQ(run({"job.yaml"}), 0) << "it runs again: only the program knows what is left";
  EXPECT_EQ(status()["training"]["attempt"], 2);
}

TEST_F(CommandRun, WithoutADsConfigThereIsNoVariable) {
  write_script(
      "[ -z \"${DSJ_DS_CONFIG+set}\" ] && [ \"$2\" = '$(DSJ_DS_CONFIG)' ] && [ -f "
      "\"$DSJ_JOB_FILE\" ]\n");
  EXPECT_EQ(run({"job.yaml"}), 0) << stderr_text() << log(0);
}

TEST_F(CommandRun, ACodeOfItsOwnIsAFailureAndIsTriedAgain) {
  write_script("mkdir \"$1/once-$RANK\" || exit 0\n[ $RANK = 0 ] || exit 2\nsleep 60\n");
  ASSERT_EQ(run({"job.yaml"}), 0) << stderr_text();
  EXPECT_EQ(status()["training"]["attempt"], 2);
  EXPECT_EQ(status()["restarts"]["counted"], 1);
  EXPECT_THAT(stderr_text(), HasSubstr("rank 1 ended with exit code 2"));
}

TEST_F(CommandRun, TheBudgetEndsIt) {
  write_script("exit 3\n", 1);
  EXPECT_EQ(run({"job.yaml"}), 1);
  EXPECT_THAT(stderr_text(), HasSubstr("BackoffLimitExceeded"));
}

TEST_F(CommandRun, StacksShowWhereAProgramOfTheUsersOwnIs) {
  write_script("touch \"$1/up-$RANK\"\nsleep 600\ntrue\n");
  start({"job.yaml"});
  ASSERT_TRUE(soon([&] { return fs::exists(at("up-0")) && fs::exists(at("up-1")); }));
  const auto log_of_agent = [&] { return read_text(out() / "logs/agent-1.log"); };
  ASSERT_TRUE(soon([&] {
    kill(pid_, SIGQUIT);  // the shell may not have started it yet
    return log_of_agent().find("nanosleep (libc") != std::string::npos;
  })) << log_of_agent();
  EXPECT_THAT(log_of_agent(), HasSubstr(": rank 1, process "));
  kill(pid_, SIGINT);
  EXPECT_EQ(finish(), 130);
}

TEST_F(CommandRun, CtrlCIsNoCompletion) {
  write_script(
      "trap 'touch \"$1/left-$RANK\"; exit 0' TERM\ntouch \"$1/up-$RANK\"\nwhile :; do sleep 0.05; "
      "done\n");
  start({"job.yaml"});
  ASSERT_TRUE(soon([&] { return fs::exists(at("up-0")) && fs::exists(at("up-1")); }));
  kill(pid_, SIGINT);
  EXPECT_EQ(finish(), 130);
  EXPECT_TRUE(fs::exists(at("left-0")) && fs::exists(at("left-1")));
  EXPECT_NE(status()["phase"], "Complete");
}

TEST_F(CommandRun, WhatCannotRunStartsNothing) {
  write_script("");
  EXPECT_EQ(run({"job.yaml", "--set",
                 "spec.workers.template.spec.containers=[{name: worker, image: x, command: "
                 "[no-such-program]}]"}),
            1);
  EXPECT_THAT(stderr_text(), HasSubstr("no-such-program: there is no such program here"));
  EXPECT_EQ(run({"job.yaml", "--set",
                 "spec.workers.template.spec.containers=[{name: worker, image: x, args: [a]}]"}),
            1);
  EXPECT_THAT(stderr_text(), HasSubstr("ENTRYPOINT"));
  EXPECT_FALSE(fs::exists(out()));
}

}  // namespace
}  // namespace dsj::run_test

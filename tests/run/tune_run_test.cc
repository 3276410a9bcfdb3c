// `dsj tune` with real trials: a tiny model, two configurations.
#include <gmock/gmock.h>

#include <algorithm>

#include "test_paths.h"
#include "tests/run/run_support.h"

namespace dsj::run_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class TuneRun : public RunTest {
 protected:
  void SetUp() override {
    if (!has_engine()) GTEST_SKIP() << "dsj-train is not built (DSJ_ENGINE=OFF)";
    RunTest::SetUp();
    write("data.json", counting_rows(16, 24).dump());
    write_job({{"maxSteps", "500"}, {"lrSchedulerType", "constant"}});
  }
  /// Steps 2 to `last` of a trial are measured.
  void write_search(int last) {
    write("ds.json", json{{"train_micro_batch_size_per_gpu", 1},
                          {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
                          {"zero_optimization", {{"stage", 2}}},
                          {"autotuning",
                           {{"enabled", true},
                            {"start_profile_step", 2},
                            {"end_profile_step", last},
                            {"max_train_micro_batch_size_per_gpu", 2}}}}
                         .dump());
  }
  fs::path results() const { return at("autotuning_results"); }
};

TEST_F(TuneRun, AShortSearchWritesAConfigurationThatRuns) {
  write_search(3);
  ASSERT_EQ(run({"job.yaml"}, "tune"), 0);
  EXPECT_THAT(stdout_text(), HasSubstr("2 configurations fit"));
  EXPECT_THAT(stdout_text(), HasSubstr("gained: "));
  for (const char* name : {"as_given", "z2_gas1_tmbspg2"}) {
    const json metrics = json::parse(read_text(results() / name / "metrics.json"));
    EXPECT_EQ(metrics["step_seconds"].size(), 2u);
    EXPECT_GT(metrics["tokens"], 0);
    EXPECT_FALSE(fs::exists(results() / name / "run/model"));
  }
  const json best = json::parse(read_text(results() / "ds_config_optimal.json"));
  EXPECT_FALSE(best.contains("autotuning"));
  EXPECT_THAT(read_text(at("autotuning_exps/as_given.json")), HasSubstr("ds_config"));
  ASSERT_EQ(run({(results() / "job_optimal.yaml").string(), "--set", "spec.training.maxSteps=2"}),
            0);
  EXPECT_EQ(run({"job.yaml"}), 1) << "a run refuses a file that asks for a search";
  EXPECT_THAT(stderr_text(), HasSubstr("dsj tune"));
}

TEST_F(TuneRun, CtrlCStopsInATrialAndTheSameCommandGoesOn) {
  constexpr int kLast = 200;
  write_search(kLast);
  const auto given = results() / "as_given", cut = results() / "z2_gas1_tmbspg2";
  start({"job.yaml"}, "tune");
  ASSERT_TRUE(soon([&] { return read_text(cut / "run/metrics.jsonl").contains('\n'); }));
  kill(pid_, SIGINT);
  ASSERT_EQ(finish(), 130);
  EXPECT_THAT(processes(), IsEmpty());
  EXPECT_THAT(stdout_text(), HasSubstr("trial 2: z2_gas1_tmbspg2 stopped\n"
                                       "the same command continues from here\n"));
  const std::string steps = read_text(cut / "run/metrics.jsonl");
  EXPECT_LT(std::ranges::count(steps, '\n'), kLast) << "in the middle of the trial";
  for (const char* outcome : {"metrics.json", "failure.json"})
    EXPECT_FALSE(fs::exists(cut / outcome)) << outcome;
  EXPECT_FALSE(fs::exists(results() / "ds_config_optimal.json"));

  const std::string measured = read_text(given / "run/metrics.jsonl");
  ASSERT_EQ(run({"job.yaml"}, "tune"), 0);
  EXPECT_THAT(stdout_text(), Not(HasSubstr("trial 1:")));
  EXPECT_THAT(stdout_text(), HasSubstr("trial 2: z2_gas1_tmbspg2 "));
  EXPECT_THAT(stdout_text(), HasSubstr("1 outcome was known"));
  EXPECT_EQ(read_text(given / "run/metrics.jsonl"), measured) << "it did not run again";
  for (const auto& trial : {given, cut}) {
    const json metrics = json::parse(read_text(trial / "metrics.json"));
    EXPECT_EQ(metrics["step_seconds"].size(), size_t{kLast - 1}) << trial;
  }
  EXPECT_TRUE(fs::exists(results() / "ds_config_optimal.json"));
}

}  // namespace
}  // namespace dsj::run_test

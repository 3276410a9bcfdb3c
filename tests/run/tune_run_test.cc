// `dsj tune` with real trials: a tiny model, two configurations.
#include <gmock/gmock.h>

#include <cstdlib>

#include "test_paths.h"
#include "tests/run/run_support.h"

namespace dsj::run_test {
namespace {

using testing::HasSubstr;

class TuneRun : public RunTest {
 protected:
  void SetUp() override {
    if (!has_engine()) GTEST_SKIP() << "dsj-train is not built (DSJ_ENGINE=OFF)";
    RunTest::SetUp();
    write("data.json", counting_rows(16, 24).dump());
    write("ds.json", json{{"train_micro_batch_size_per_gpu", 1},
                          {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
                          {"zero_optimization", {{"stage", 2}}},
                          {"autotuning",
                           {{"enabled", true},
                            {"start_profile_step", 2},
                            {"end_profile_step", 3},
                            {"max_train_micro_batch_size_per_gpu", 2}}}}
                         .dump());
    write_job({{"maxSteps", "500"}, {"lrSchedulerType", "constant"}});
  }
  int tune() {
    const std::string dsj = std::string(DSJ_BIN_DIR) + "/dsj";
    return WEXITSTATUS(std::system(
        ("cd " + folder_.string() + " && " + dsj + " tune job.yaml >said 2>&1").c_str()));
  }
};

TEST_F(TuneRun, AShortSearchWritesAConfigurationThatRuns) {
  ASSERT_EQ(tune(), 0) << read_text(at("said"));
  const std::string said = read_text(at("said"));
  EXPECT_THAT(said, HasSubstr("2 configurations fit"));
  EXPECT_THAT(said, HasSubstr("gained: "));
  const auto results = at("autotuning_results");
  for (const char* name : {"as_given", "z2_gas1_tmbspg2"}) {
    const json metrics = json::parse(read_text(results / name / "metrics.json"));
    EXPECT_EQ(metrics["step_seconds"].size(), 2u);
    EXPECT_GT(metrics["tokens"], 0);
    EXPECT_FALSE(fs::exists(results / name / "run/model"));
  }
  const json best = json::parse(read_text(results / "ds_config_optimal.json"));
  EXPECT_FALSE(best.contains("autotuning"));
  EXPECT_THAT(read_text(at("autotuning_exps/as_given.json")), HasSubstr("ds_config"));
  ASSERT_EQ(run({(results / "job_optimal.yaml").string(), "--set", "spec.training.maxSteps=2"}), 0);
  EXPECT_EQ(run({"job.yaml"}), 2) << "a run refuses a file that asks for a search";
  EXPECT_THAT(stderr_text(), HasSubstr("dsj tune"));
}

}  // namespace
}  // namespace dsj::run_test

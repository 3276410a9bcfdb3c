// `dsj run` and `dsj checkpoint import` on checkpoints of Python DeepSpeed (tests/fixtures/ds-frozen): the run that goes on has
// DeepSpeed's next losses.
#include "tests/run/run_support.h"

namespace dsj::run_test {
namespace {

class DeepSpeedRun : public RunTest {
 protected:
  void SetUp() override {
    if (!has_engine()) GTEST_SKIP() << "dsj-train is not built (DSJ_ENGINE=OFF)";
    RunTest::SetUp();
    const json record = json::parse(read_text(theirs() / "record.json"));
    fs::remove_all(at("model"));
    fs::copy(theirs() / "model", at("model"));
    write("data.json", record["rows"].dump());
    write("ds.json", record["ds_config"]["2"].dump());
    losses_ = record["losses"]["2"].get<std::vector<double>>();
  }
  static fs::path theirs() { return fs::path(DSJ_SOURCE_DIR) / "tests/fixtures/ds-frozen"; }

  /// Steps 4 to 6 of a torchrun line, after DeepSpeed's three.
  void expect_goes_on(const std::vector<std::string>& more) {
    std::vector<std::string> line = {"--nproc_per_node=2",
                                     "--deepspeed=ds.json",
                                     "--model_name_or_path=model",
                                     "--data_path=data.json",
                                     "--output_dir=out",
                                     "--per_device_train_batch_size=2",
                                     "--max_steps=6",
                                     "--save_strategy=no",
                                     "--shuffle=false",
                                     "--lr_scheduler_type=constant",
                                     "--loss_normalization=micro-batch"};
    line.insert(line.end(), more.begin(), more.end());
    ASSERT_EQ(run(line), 0);
    std::ifstream in(out() / "metrics.jsonl");
    size_t step = 3;
    for (std::string text; std::getline(in, text); ++step) {
      const json found = json::parse(text);
      ASSERT_LT(step, losses_.size());
      EXPECT_EQ(found["step"], step + 1);
      EXPECT_NEAR(found["loss"], losses_[step], 1e-5 * losses_[step]);
    }
    EXPECT_EQ(step, 6u);
    fs::remove_all(out());
  }

  std::vector<double> losses_;
};

TEST_F(DeepSpeedRun, GoesOnFromTheFolderFromATagAndFromWhatWasImported) {
  const std::string folder = theirs() / "z2";
  expect_goes_on({"--resume_from_checkpoint", folder});
  expect_goes_on({"--resume_from_checkpoint", folder + "/global_step3"});
  ASSERT_EQ(run({"import", folder, "out"}, "checkpoint"), 0);
  expect_goes_on({});
}

}  // namespace
}  // namespace dsj::run_test

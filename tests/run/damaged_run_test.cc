// `dsj run` on a damaged checkpoint: all ranks learn of it, the run goes on from the one before, and
// the damaged one is named and set aside.
#include <gmock/gmock.h>

#include "test_paths.h"
#include "tests/run/run_support.h"

namespace dsj::run_test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

enum class Damage { Flip, Short, NoPart, NoManifest };

struct Case {
  int stage, replicas, slots;
  Damage damage;
  bool lora = false;
};

class DamagedJob : public RunTest {
 protected:
  void SetUp() override {
    if (!has_engine()) GTEST_SKIP() << "dsj-train is not built (DSJ_ENGINE=OFF)";
    RunTest::SetUp();
    write("data.json", counting_rows(16, 12).dump());
  }
  void write_train_job(const Case& made, int steps) {
    write("ds.json",
          R"({"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": )" +
              std::to_string(made.stage) +
              R"(}, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})");
    const std::map<std::string, std::string> training{{"maxSteps", std::to_string(steps)},
                                                      {"saveSteps", "3"},
                                                      {"learningRate", "3e-3"},
                                                      {"lrSchedulerType", "constant"}};
    write_job(training, made.replicas, made.slots);
  }
  int run_job(const Case& made) {
    if (!made.lora) return run({"job.yaml"});
    return run({"job.yaml", "--set", "spec.training.lora={r: 4, targetModules: all-linear}"});
  }
  static std::string part_of(const Case& made) {
    return "rank-0000" + std::to_string(made.replicas * made.slots - 1) + ".bin";
  }
  static std::string damaged_file(const Case& made) {
    return made.damage == Damage::NoManifest ? "manifest.json" : part_of(made);
  }
  /// Damages the part of the last rank.
  void damage(const std::string& checkpoint, const Case& made) {
    const fs::path folder = out() / "checkpoints" / checkpoint;
    const std::string part = part_of(made);
    ASSERT_TRUE(fs::exists(folder / part));
    switch (made.damage) {
      case Damage::Flip: {
        std::fstream file(folder / part, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(1000);
        const char byte = static_cast<char>(file.get() ^ 4);
        file.seekp(1000);
        file.put(byte);
        break;
      }
      case Damage::Short:
        fs::resize_file(folder / part, fs::file_size(folder / part) - 4);
        break;
      case Damage::NoPart:
        fs::remove(folder / part);
        break;
      case Damage::NoManifest:
        fs::remove(folder / "manifest.json");
        break;
    }
  }
  std::map<int64_t, double> losses() const {
    std::map<int64_t, double> values;
    std::ifstream in(out() / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      const json step = json::parse(line);
      values[step["step"]] = step["loss"];
    }
    return values;
  }
  bool there(const std::string& checkpoint) const {
    return fs::exists(out() / "checkpoints" / checkpoint);
  }
};

class DamagedRun : public DamagedJob, public testing::WithParamInterface<Case> {};

TEST_P(DamagedRun, GoesOnFromTheOneBefore) {
  write_train_job(GetParam(), 6);
  ASSERT_EQ(run_job(GetParam()), 0);
  const auto before = losses();
  damage("step-6", GetParam());
  write_train_job(GetParam(), 8);
  ASSERT_EQ(run_job(GetParam()), 0);
  EXPECT_THAT(stdout_text(), HasSubstr("resumed from step 3"));
  const json told = status()["checkpoint"]["lastDamaged"];
  EXPECT_EQ(told["step"], 6);
  EXPECT_EQ(told["attempt"], status()["attempt"]);
  const std::string what = told["message"];
  EXPECT_TRUE(
      what.starts_with("the run continues from step 3; checkpoint step-6 is passed over and "
                       "set aside as damaged-step-6: " +
                       damaged_file(GetParam()) + ": "))
      << what;
  if (GetParam().damage == Damage::Flip) {
    EXPECT_THAT(what, HasSubstr("block 0, the "));
  }
  if (GetParam().damage != Damage::NoManifest) {
    EXPECT_THAT(what, ContainsRegex("read for [a-z_]+ of [A-Za-z0-9_.]+")) << "the tensor";
  }
  EXPECT_THAT(stderr_text(), HasSubstr("warning: " + what));
  EXPECT_TRUE(there("damaged-step-6"));
  EXPECT_TRUE(there("step-6")) << "saved again";
  const auto after = losses();
  for (const int64_t step : {4, 5, 6}) EXPECT_EQ(after.at(step), before.at(step)) << step;
  EXPECT_EQ(metric_steps(), one_to(8));
  EXPECT_EQ(status()["restarts"].value("total", 0), 0);
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const Case& made = info.param;
  const char* damages[] = {"Flip", "Short", "NoPart", "NoManifest"};
  return "Stage" + std::to_string(made.stage) + "Workers" + std::to_string(made.replicas) +
         "Slots" + std::to_string(made.slots) + damages[static_cast<int>(made.damage)] +
         (made.lora ? "Lora" : "");
}

INSTANTIATE_TEST_SUITE_P(EveryStage, DamagedRun,
                         testing::Values(Case{0, 1, 2, Damage::Flip}, Case{1, 1, 2, Damage::Flip},
                                         Case{2, 1, 2, Damage::Flip}, Case{3, 1, 2, Damage::Flip},
                                         Case{3, 1, 1, Damage::Flip}, Case{2, 2, 1, Damage::Flip},
                                         Case{3, 1, 2, Damage::Flip, true},
                                         Case{2, 1, 2, Damage::Short},
                                         Case{2, 1, 2, Damage::NoPart},
                                         Case{2, 1, 2, Damage::NoManifest}),
                         name_of);

/// The newest checkpoint may be sound, so nothing older is taken instead of it.
TEST_F(DamagedJob, WhatIsNoDamageEndsTheRunAndMovesNothing) {
  const Case made{2, 1, 2, Damage::Flip};
  for (const std::string name : {"rank-00001.bin", "rank-00001.json", "manifest.json"}) {
    fs::remove_all(out());
    write_train_job(made, 6);
    ASSERT_EQ(run({"job.yaml"}), 0);
    const fs::path file = out() / "checkpoints" / "step-6" / name;
    const fs::path aside = out() / "aside";
    fs::rename(file, aside);
    fs::create_symlink(file, file);  // a link to itself cannot be opened, whoever tries
    write_train_job(made, 8);
    EXPECT_EQ(run({"job.yaml"}), 3) << name;
    EXPECT_THAT(stdout_text() + stderr_text(),
                HasSubstr(name + ": opening for reading: Too many levels of symbolic links"));
    EXPECT_FALSE(there("damaged-step-6")) << name;
    fs::remove(file);
    fs::rename(aside, file);
    EXPECT_EQ(run({"job.yaml"}), 0) << "the reason is gone";
    EXPECT_THAT(stdout_text(), HasSubstr("resumed from step 6"));
  }
}

TEST_F(DamagedJob, EndsWithTheReasonIfNothingIsSound) {
  const Case made{2, 1, 2, Damage::Flip};
  write_train_job(made, 6);
  ASSERT_EQ(run({"job.yaml"}), 0);
  damage("step-3", made);
  damage("step-6", made);
  write_train_job(made, 8);
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(run({"job.yaml"}), 3) << "every time";
    EXPECT_THAT(stdout_text() + stderr_text(), HasSubstr("does not match its checksum"));
    EXPECT_THAT(stdout_text() + stderr_text(), HasSubstr("no complete checkpoint is left"));
    EXPECT_TRUE(there("step-3"));
    EXPECT_TRUE(there("step-6"));
    EXPECT_EQ(status()["restarts"].value("total", 0), 0) << "nothing is charged";
    const json conditions = status()["conditions"];
    const auto failed =
        std::ranges::find_if(conditions, [](const json& one) { return one["type"] == "Failed"; });
    ASSERT_NE(failed, conditions.end());
    const std::string why = (*failed)["message"];
    EXPECT_THAT(why, HasSubstr("step-6/rank-00001.bin: block 0, the "));
    EXPECT_THAT(why, ContainsRegex("read for [a-z_]+ of [A-Za-z0-9_.]+"));
    EXPECT_THAT(why, HasSubstr("no complete checkpoint is left"));
  }
}

}  // namespace
}  // namespace dsj::run_test

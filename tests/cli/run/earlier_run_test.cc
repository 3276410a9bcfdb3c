#include "cli/run/earlier_run.h"

#include <gtest/gtest.h>

#include "common/files/memory_files.h"

namespace dsj::cli {
namespace {

using Kind = Course::Kind;
using nlohmann::json;

class EarlierRunTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* directory : {"/m", "/m2", "/run"}) ASSERT_TRUE(files_.make_dir(directory));
    put("/m/config.json", "{}");
    put("/m/model.safetensors", "one");
    put("/m2/config.json", "{}");
    put("/m2/model.safetensors", "two");
    put("/monday.json", "[1]");
    put("/tuesday.json", "[2]");
    job_.training = {.model_name_or_path = "/m", .data_path = "/monday.json", .output_dir = "/out"};
    job_.training.max_steps = 3;
    job_.training.learning_rate = 1e-3;
    job_.ds_config = json{{"train_micro_batch_size_per_gpu", 2}};
    ASSERT_TRUE(record_inputs(files_, "/run", inputs_of(files_, job_).value()));
  }
  void put(const std::string& path, const std::string& text) {
    ASSERT_TRUE(files_.write_synced(path, text));
  }
  Course course(bool finished, bool ignore_data_skip = false) {
    const EarlierRun earlier{
        .inputs = recorded_inputs(files_, "/run"), .finished = finished, .has_checkpoints = true};
    return course_after(earlier, inputs_of(files_, job_).value(), ignore_data_skip);
  }
  bool offers_other_data(bool finished) {
    const EarlierRun earlier{
        .inputs = recorded_inputs(files_, "/run"), .finished = finished, .has_checkpoints = true};
    const std::string ways = ways_on(earlier, inputs_of(files_, job_).value());
    EXPECT_NE(ways.find("--overwrite_output_dir True"), std::string::npos) << ways;
    return ways.find("--ignore_data_skip True") != std::string::npos;
  }
  void expect(const Course& found, Kind kind, const std::string& said) {
    EXPECT_EQ(found.kind, kind);
    ASSERT_EQ(found.said.size(), said.empty() ? 0u : 1u);
    if (!said.empty()) {
      EXPECT_EQ(found.said[0], said);
    }
  }

  MemoryFiles files_;
  jobspec::Job job_;
};

TEST_F(EarlierRunTest, TheSameCommandContinuesOrIsComplete) {
  for (const bool finished : {false, true}) expect(course(finished), Kind::GoOn, "");
  put("/copy.json", "[1]");
  job_.training.data_path = "/copy.json";
  job_.training.logging_steps = 5;
  job_.training.save_steps = 7;
  job_.training.ignore_data_skip = true;
  job_.ds_config["zero_optimization"] = {{"stage", 3}};
  job_.ds_config["steps_per_print"] = 1;
  for (const bool finished : {false, true}) expect(course(finished), Kind::GoOn, "");
}

TEST_F(EarlierRunTest, OtherDataAreAnotherRun) {
  job_.training.data_path = "/tuesday.json";
  for (const bool finished : {false, true})
    expect(course(finished), Kind::Refuse, "it had data /monday.json, now it is /tuesday.json");
  expect(course(false, true), Kind::GoOn, "it had data /monday.json, now it is /tuesday.json");
  EXPECT_EQ(course(true, true).kind, Kind::Refuse) << "a finished run trains on nothing";
  EXPECT_TRUE(offers_other_data(false));
  EXPECT_FALSE(offers_other_data(true));
  job_.training.max_steps = 6;
  EXPECT_EQ(course(true, true).kind, Kind::GoOn) << "three more steps on other data, as asked";
  job_.training.data_path = "/monday.json";
  put("/monday.json", "[3]");
  expect(course(false), Kind::Refuse, "it had data /monday.json, whose content has changed");
}

TEST_F(EarlierRunTest, AnotherModelIsAnotherRun) {
  job_.training.model_name_or_path = "/m2";
  for (const bool finished : {false, true})
    expect(course(finished, true), Kind::Refuse, "it had model /m, now it is /m2");
  EXPECT_FALSE(offers_other_data(false));
  put("/m2/model.safetensors", "one");
  expect(course(true), Kind::GoOn, "");  // a copy of it
  put("/m2/README.md", "text");
  expect(course(true), Kind::GoOn, "");
}

TEST_F(EarlierRunTest, AnotherLearningRateIsAnotherRunOnceTheFirstHasFinished) {
  job_.training.learning_rate = 2e-3;
  const std::string said = "learningRate was 0.001 and is 0.002";
  expect(course(true), Kind::Refuse, said);
  expect(course(false), Kind::GoOn, said);
  job_.training.max_steps = 6;
  expect(course(true), Kind::GoOn, said);
  job_.training = {.model_name_or_path = "/m", .data_path = "/monday.json", .output_dir = "/out"};
  job_.training.max_steps = 3;
  job_.training.learning_rate = 1e-3;
  job_.ds_config["optimizer"] = {{"params", {{"lr", 0.5}}}};
  expect(course(true), Kind::Refuse, "optimizer.params.lr was not given and is 0.5");
}

TEST_F(EarlierRunTest, WithoutARecordOrARunNothingIsRefused) {
  const json other = {{"model", {{"content", 1}}}, {"data", {{"content", 1}}}};
  EXPECT_EQ(course_after({.inputs = nullptr, .finished = true}, other, false).kind, Kind::GoOn);
  const json before = recorded_inputs(files_, "/run");
  EXPECT_EQ(course_after({.inputs = before}, other, false).kind, Kind::GoOn);
  EXPECT_TRUE(recorded_inputs(files_, "/none").is_null());
  put("/run/inputs.json", "[");
  EXPECT_TRUE(recorded_inputs(files_, "/run").is_null());
}

}  // namespace
}  // namespace dsj::cli

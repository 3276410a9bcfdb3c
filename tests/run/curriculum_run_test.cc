// A run with a curriculum by row length and random-LTD: what each step went by stands in
// metrics.jsonl, and a run that was cut in the middle goes on bit for bit.
#include <gmock/gmock.h>

#include <cstdlib>

#include "test_paths.h"
#include "tests/run/run_support.h"

namespace dsj::run_test {
namespace {

using testing::HasSubstr;

class CurriculumRun : public RunTest {
 protected:
  void SetUp() override {
    if (!has_engine()) GTEST_SKIP() << "dsj-train is not built (DSJ_ENGINE=OFF)";
    RunTest::SetUp();
    write("data.json", counting_rows(48, 24).dump());
    const json schedule = {
        {"min_difficulty", 4},
        {"max_difficulty", 24},
        {"schedule_type", "fixed_linear"},
        {"schedule_config", {{"total_curriculum_step", 30}, {"difficulty_step", 2}}}};
    json metric = schedule;
    metric.update({{"difficulty_type", "value"}, {"clustering_type", "single_cluster"}});
    const json ltd = {{"enabled", true},
                      {"total_layer_num", 2},
                      {"random_ltd_layer_num", 1},
                      {"random_ltd_layer_id", {1}},
                      {"model_type", "decoder"},
                      {"hidden_state_order", "batch_seq_dim"},
                      {"random_ltd_schedule",
                       {{"min_value", 4},
                        {"max_value", 16},
                        {"schedule_type", "fixed_linear"},
                        {"schedule_config", {{"require_steps", 24}, {"seq_per_step", 4}}}}}};
    json config = {{"train_micro_batch_size_per_gpu", 1},
                   {"gradient_accumulation_steps", 2},
                   {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 3e-3}}}}},
                   {"zero_optimization", {{"stage", 2}}},
                   {"data_efficiency",
                    {{"data_sampling",
                      {{"curriculum_learning",
                        {{"enabled", true}, {"curriculum_metrics", {{"seqlen", metric}}}}}}},
                     {"data_routing", {{"random_ltd", ltd}}}}}};
    write("ds.json", config.dump());
  }
  int train(int steps) {
    write_job({{"maxSteps", std::to_string(steps)},
               {"saveSteps", "1000"},
               {"lrSchedulerType", "constant"}});
    return run({"job.yaml"});
  }
  std::vector<json> metrics() const {
    std::vector<json> lines;
    std::ifstream in(out() / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
  }
  static std::vector<double> losses(const std::vector<json>& lines) {
    std::vector<double> values;
    for (const json& line : lines) values.push_back(line["loss"]);
    return values;
  }
};

TEST_F(CurriculumRun, TheNextTwentyLossesAfterAResumeAreTheSame) {
  ASSERT_EQ(train(27), 0);
  const auto whole = metrics();
  ASSERT_EQ(whole.size(), 27u);
  for (int64_t step = 1; step <= 27; ++step) {
    const json& line = whole[static_cast<size_t>(step - 1)];
    const int64_t length = (4 + step * 20 / 30) / 2 * 2;
    EXPECT_EQ(line["difficulty"]["seqlen"], length) << "step " << step;
    EXPECT_EQ(line["difficulty"]["random_ltd"], (4 + (step - 1) * 12 / 24) / 4 * 4);
    EXPECT_EQ(line["tokens"], 4 * length) << "2 ranks, 2 micro-steps";
  }
  EXPECT_EQ(status()["training"]["resolvedConfig"]["data_efficiency"]["row_length"]["metric"],
            "seqlen");
  fs::remove_all(out());
  ASSERT_EQ(train(7), 0);
  fs::remove(out() / "status.yaml");  // it says that the run is complete
  ASSERT_EQ(train(27), 0);
  EXPECT_THAT(stdout_text(), HasSubstr("resumed from step 7"));
  EXPECT_EQ(losses(metrics()), losses(whole));
  EXPECT_EQ(metrics().back()["difficulty"], whole.back()["difficulty"]);
}

/// `dsj analyze` measures the rows, two metrics choose among them, and a run that was cut while rows
/// are still being admitted goes on bit for bit.
TEST_F(CurriculumRun, MetricsChooseRowsAndAResumeGoesOn) {
  json rows = counting_rows(40, 24);
  for (size_t row = 0; row < rows.size(); ++row)
    for (const char* key : {"input_ids", "labels"}) {
      json& list = rows[row][key];
      list.erase(list.begin() + static_cast<int>(4 + row / 2), list.end());
    }
  write("data.json", rows.dump());
  const std::string dsj = std::string(DSJ_BIN_DIR) + "/dsj";
  ASSERT_EQ(std::system(("cd " + folder_.string() + " && " + dsj +
                         " analyze data.json --model model --output metrics >analyzed")
                            .c_str()),
            0);
  const std::string said = read_text(at("analyzed"));
  EXPECT_THAT(said, HasSubstr("40 rows of data.json"));
  EXPECT_THAT(said, HasSubstr("vocabulary_rarity"));
  const json printed = json::parse(said.substr(said.find("\n{")));
  json config = json::parse(read_text(at("ds.json")));
  config["data_efficiency"] = printed["data_efficiency"];
  json& metrics =
      config["data_efficiency"]["data_sampling"]["curriculum_learning"]["curriculum_metrics"];
  for (auto& [name, metric] : metrics.items())
    metric["schedule_config"] = {
        {"total_curriculum_step", 24}, {"difficulty_step", 1}, {"root_degree", 2}};
  metrics["length"].update(
      {{"difficulty_type", "value"},
       {"index_to_sample_path", (at("metrics") / "length/length_index_to_sample")},
       {"min_difficulty", 8},
       {"max_difficulty", 23}});
  metrics["vocabulary_rarity"]["max_difficulty"] = 20;  // two rows a level
  write("ds.json", config.dump());
  ASSERT_EQ(train(27), 0);
  const auto whole = this->metrics();
  ASSERT_EQ(whole.size(), 27u);
  for (const json& line : whole) {
    EXPECT_LE(line["tokens"], 4 * line["difficulty"]["length"].get<int64_t>()) << line;
    EXPECT_LE(line["difficulty"]["vocabulary_rarity"], 20);
  }
  EXPECT_LT(whole[6]["difficulty"]["length"], 23) << "the cut comes while rows are still admitted";
  fs::remove_all(out());
  ASSERT_EQ(train(7), 0);
  fs::remove(out() / "status.yaml");  // it says that the run is complete
  ASSERT_EQ(train(27), 0);
  EXPECT_THAT(stdout_text(), HasSubstr("resumed from step 7"));
  EXPECT_EQ(losses(this->metrics()), losses(whole));
}

TEST_F(CurriculumRun, RowsCutBeforeTheirTargetsAreTold) {
  json rows = counting_rows(48, 24);
  for (json& row : rows)
    for (int i = 0; i < 12; ++i) row["labels"][i] = -100;
  write("data.json", rows.dump());
  ASSERT_EQ(train(2), 0);
  EXPECT_THAT(stdout_text() + stderr_text(), HasSubstr("before its first target"));
  EXPECT_EQ(metrics()[0]["loss"], 0.0);
}

}  // namespace
}  // namespace dsj::run_test

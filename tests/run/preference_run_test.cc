// `dsj run` with objectives that compare or judge answers, against TRL's trainers (tests/fixtures/preference): the
// same losses, rewards and evaluations at each stage, on one rank and on two, and over a resume.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "test_paths.h"
#include "tests/run/run_support.h"

namespace dsj::run_test {
namespace {

using testing::HasSubstr;

class PreferenceRun : public RunTest {
 protected:
  void SetUp() override {
    if (!has_engine()) GTEST_SKIP() << "dsj-train is not built (DSJ_ENGINE=OFF)";
    RunTest::SetUp();
    const fs::path fixtures = fs::path(DSJ_SOURCE_DIR) / "tests/fixtures";
    fs::remove_all(at("model"));
    fs::copy(fixtures / "tiny-llama", at("model"));
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
      fs::copy(fixtures / "preference" / file, at("model") / file);
    oracle_ = json::parse(read_text(fixtures / "preference/steps.json"));
    const json kto = json::parse(read_text(fixtures / "preference/kto.json"));
    for (json one : kto["cases"]) {
      const std::string name = "kto_" + one["rows"].get<std::string>();
      one["rows"] = name;
      one["objective"] = "kto";
      oracle_["cases"].push_back(one);
      for (const auto& [part, end] :
           {std::pair{"_train.jsonl", ".jsonl"}, {"_eval.jsonl", "-eval.jsonl"}})
        fs::copy_file(fixtures / "preference" / (name + part), at(name + end),
                      fs::copy_options::overwrite_existing);
    }
    for (const char* name : {"texts", "implicit", "chats", "whole"}) {
      std::ifstream all(fixtures / "preference" / (std::string(name) + ".jsonl"));
      std::ofstream train(at(std::string(name) + ".jsonl")),
          eval(at(std::string(name) + "-eval.jsonl"));
      int row = 0;
      for (std::string line; std::getline(all, line); ++row)
        (row < 12 ? train : eval) << line << "\n";
    }
  }

  /// The case of these rows and options; `loss` empty: of any.
  json oracle_of(const std::string& rows, const std::string& objective,
                 const std::string& loss = "") const {
    for (const json& one : oracle_["cases"])
      if (one["rows"] == rows && one["objective"] == objective &&
          (loss.empty() || one["options"].value("loss_type", json::array()) == json::array({loss})))
        return one;
    ADD_FAILURE() << "no case of " << rows << " " << objective << " " << loss;
    return {};
  }
  std::vector<std::string> line_of(const json& one, int ranks, int stage) {
    write("ds.json", json{{"train_micro_batch_size_per_gpu", "auto"},
                          {"gradient_accumulation_steps", "auto"},
                          {"gradient_clipping", 0},
                          {"zero_optimization", {{"stage", stage}}}}
                         .dump());
    const std::string rows = one["rows"];
    std::vector<std::string> line = {"--nproc_per_node=" + std::to_string(ranks),
                                     "--deepspeed=ds.json",
                                     "--model_name_or_path=model",
                                     "--output_dir=out",
                                     "--data_path=" + rows + ".jsonl",
                                     "--eval_data_path=" + rows + "-eval.jsonl",
                                     "--eval_strategy=steps",
                                     "--eval_steps=10",
                                     "--per_device_eval_batch_size=3",
                                     "--per_device_train_batch_size=2",
                                     "--gradient_accumulation_steps=" + std::to_string(2 / ranks),
                                     "--max_steps=20",
                                     "--shuffle=False",
                                     "--weight_decay=0",
                                     "--lr_scheduler_type=constant",
                                     "--learning_rate=" + oracle_["learning_rate"].dump(),
                                     "--max_length=" + one["max_length"].dump(),
                                     "--save_strategy=no",
                                     "--objective=" + one["objective"].get<std::string>()};
    for (const auto& [name, value] : one["options"].items()) {
      const json& word = value.is_array() ? value[0] : value;
      line.push_back("--" + name + "=" +
                     (word.is_string() ? word.get<std::string>() : word.dump()));
    }
    return line;
  }
  std::vector<json> lines(bool evaluations) const {
    std::vector<json> found;
    std::ifstream in(out() / "metrics.jsonl");
    for (std::string line; std::getline(in, line);)
      if (const json one = json::parse(line); one.contains("eval_loss") == evaluations)
        found.push_back(one);
    return found;
  }
  /// The run's lines against TRL's. `evaluates`: one rank, whose evaluation batches are TRL's.
  void expect_as_trl(const json& one, bool evaluates) const {
    const auto compare = [&](const std::vector<json>& own, const json& theirs) {
      ASSERT_EQ(own.size(), theirs.size());
      for (size_t i = 0; i < own.size(); ++i) {
        for (const auto& [name, value] : theirs[i].items()) {
          ASSERT_TRUE(own[i].contains(name)) << name;
          const double expected = value;
          const double tolerance =
              1e-5 * std::max(1.0, std::abs(expected)) * (name == "grad_norm" ? 10 : 1);
          EXPECT_NEAR(own[i][name].get<double>(), expected, tolerance) << name << " of line " << i;
        }
      }
    };
    compare(lines(false), one["steps"]);
    if (evaluates) compare(lines(true), one["evals"]);
  }

  json oracle_;
};

TEST_F(PreferenceRun, EveryStageAndTwoRanksGiveTrlsNumbers) {
  const json one = oracle_of("texts", "dpo", "sigmoid");
  for (const auto& [stage, ranks] : {std::pair{0, 1}, {1, 2}, {2, 2}, {3, 2}}) {
    SCOPED_TRACE("stage " + std::to_string(stage) + ", ranks " + std::to_string(ranks));
    fs::remove_all(out());
    ASSERT_EQ(run(line_of(one, ranks, stage)), 0);
    expect_as_trl(one, ranks == 1);
  }
}

TEST_F(PreferenceRun, EveryShapeOfRowsIsReadAsTrlDoes) {
  for (const char* rows : {"implicit", "chats", "whole"}) {
    SCOPED_TRACE(rows);
    fs::remove_all(out());
    const json one = oracle_of(rows, "dpo");
    ASSERT_EQ(run(line_of(one, 1, 2)), 0);
    expect_as_trl(one, true);
  }
}

TEST_F(PreferenceRun, OrpoIsTrls) {
  for (const char* rows : {"texts", "chats"}) {
    const json one = oracle_of(rows, "orpo");
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(std::string(rows) + ", ranks " + std::to_string(ranks));
      fs::remove_all(out());
      ASSERT_EQ(run(line_of(one, ranks, ranks == 1 ? 0 : 3)), 0);
      expect_as_trl(one, ranks == 1);
    }
  }
}

/// Of rows with labels and of pairs; on two ranks the KL term is the mean of both.
TEST_F(PreferenceRun, KtoIsTrls) {
  for (const json& one : oracle_["cases"]) {
    if (one["objective"] != "kto" || one["trained"] != 12) continue;
    const int ranks = one["ranks"];
    for (const int stage : {0, 3}) {
      SCOPED_TRACE(one["rows"].get<std::string>() + " " + one["options"].dump() + ", ranks " +
                   std::to_string(ranks) + ", stage " + std::to_string(stage));
      fs::remove_all(out());
      ASSERT_EQ(run(line_of(one, ranks, stage)), 0);
      expect_as_trl(one, ranks == 1);
    }
  }
}

/// The exported model is transformers': a run that begins with it goes on with its score.
TEST_F(PreferenceRun, RewardIsTrlsAndItsModelAReward) {
  const json cases = json::parse(
      read_text(fs::path(DSJ_SOURCE_DIR) / "tests/fixtures/preference/reward.json"))["cases"];
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(fs::path(DSJ_SOURCE_DIR) / "tests/fixtures/preference/reward" / file,
                  at("model") / file, fs::copy_options::overwrite_existing);
  for (const auto& [rows, ranks, stage] :
       {std::tuple{"texts", 1, 0}, {"implicit", 1, 3}, {"chats", 2, 2}}) {
    const auto found = std::ranges::find(cases, rows, [](const json& one) { return one["rows"]; });
    SCOPED_TRACE(rows);
    fs::remove_all(out());
    ASSERT_EQ(run(line_of(*found, ranks, stage)), 0) << stderr_text();
    json theirs = *found;
    if (ranks == 2)  // a least and a greatest of both micro-batches, not their means
      for (json& step : theirs["steps"])
        for (const char* name : {"min_reward", "max_reward"}) step.erase(name);
    expect_as_trl(theirs, ranks == 1);
    const json config = json::parse(read_text(out() / "model/config.json"));
    EXPECT_EQ(config["architectures"], json({"LlamaForSequenceClassification"}));
    EXPECT_EQ(config["id2label"].size(), 1u);
    EXPECT_EQ(config["pad_token_id"], 101) << "the tokenizer's, from which scores were read";
  }
  // Another objective has no use for it, and nothing answers with it.
  auto line = line_of(oracle_of("texts", "dpo", "sigmoid"), 1, 0);
  EXPECT_EQ(run(line), 1);
  EXPECT_THAT(stdout_text() + stderr_text(), HasSubstr("is a reward model"));
}

/// A model without a score gets one, whatever the stage; with LoRA it is trained whole.
TEST_F(PreferenceRun, ANewScoreIsDrawnFromTheSeed) {
  const json cases = json::parse(
      read_text(fs::path(DSJ_SOURCE_DIR) / "tests/fixtures/preference/reward.json"))["cases"];
  for (const bool lora : {false, true}) {
    std::vector<json> first;
    for (const int stage : {0, 3}) {
      SCOPED_TRACE(stage);
      fs::remove_all(out());
      auto line = line_of(cases[0], 2, stage);
      if (lora)
        for (const char* word : {"--use_lora=True", "--lora_r=4", "--lora_task_type=SEQ_CLS"})
          line.push_back(word);
      ASSERT_EQ(run(line), 0) << stderr_text();
      const auto steps = lines(false);
      EXPECT_NEAR(steps[0]["loss"].get<double>(), std::log(2), 0.1) << "the scores are small";
      EXPECT_LT(steps[18]["loss"].get<double>(), steps[0]["loss"].get<double>())
          << "of the same rows";
      if (first.empty()) first = steps;
      for (size_t i = 0; i < steps.size(); ++i)
        EXPECT_NEAR(steps[i]["loss"].get<double>(), first[i]["loss"].get<double>(), 1e-5);
      if (!lora) continue;
      const json adapter = json::parse(read_text(out() / "model/adapter_config.json"));
      EXPECT_EQ(adapter["task_type"], "SEQ_CLS");
      EXPECT_EQ(adapter["modules_to_save"], json({"score"}));
    }
  }
}

/// The reference is kept: a resume reads it, and goes on as if nothing had been.
TEST_F(PreferenceRun, AResumeNeedsNoOldWeights) {
  const json one = oracle_of("texts", "dpo", "sigmoid");
  auto line = line_of(one, 2, 3);
  std::erase_if(line, [](const std::string& word) { return word.starts_with("--save_"); });
  line.push_back("--save_steps=5");
  ASSERT_EQ(run(line), 0);
  const auto whole = lines(false);
  ASSERT_TRUE(fs::exists(out() / "reference_logps.json"));
  const std::string kept = read_text(out() / "reference_logps.json");
  for (const int step : {15, 20})
    fs::remove_all(out() / ("checkpoints/step-" + std::to_string(step)));
  fs::remove(out() / "status.yaml");
  ASSERT_EQ(run(line), 0);
  EXPECT_THAT(stdout_text(), HasSubstr("resumed from step 10"));
  EXPECT_EQ(read_text(out() / "reference_logps.json"), kept);
  const auto again = lines(false);
  ASSERT_EQ(again.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i)
    for (const char* name : {"loss", "rewards/margins", "logps/chosen"})
      EXPECT_EQ(again[i][name], whole[i][name]) << name << " of step " << i + 1;
}

/// With LoRA the reference is the model without its adapter, which begins as that model.
TEST_F(PreferenceRun, LoraBeginsAtItsReference) {
  const json one = oracle_of("texts", "dpo", "sigmoid");
  std::vector<json> first;
  for (const int stage : {0, 3}) {
    fs::remove_all(out());
    auto line = line_of(one, 2, stage);
    for (const char* word : {"--use_lora=True", "--lora_r=4", "--lora_dropout=0.5"})
      line.push_back(word);
    ASSERT_EQ(run(line), 0);
    const auto steps = lines(false);
    EXPECT_NEAR(steps[0]["loss"].get<double>(), std::log(2), 1e-6) << "nothing is dropped out";
    EXPECT_NEAR(steps[0]["rewards/margins"].get<double>(), 0, 1e-6);
    EXPECT_LT(steps.back()["loss"].get<double>(), steps[0]["loss"].get<double>());
    if (first.empty()) first = steps;
    for (size_t i = 0; i < steps.size(); ++i)
      EXPECT_NEAR(steps[i]["loss"].get<double>(), first[i]["loss"].get<double>(), 1e-5);
  }
}

/// A split of the rows that pairs become would part the pairs.
TEST_F(PreferenceRun, KtoRefusesToSplitPairs) {
  auto line = line_of(oracle_of("kto_pairs", "kto"), 1, 0);
  std::erase_if(line, [](const std::string& word) { return word.starts_with("--eval_data_path"); });
  line.push_back("--val_size=0.25");
  EXPECT_NE(run(line), 0);
  EXPECT_THAT(stdout_text() + stderr_text(), HasSubstr("separate the pairs"));
}

TEST_F(PreferenceRun, RowsOfAnotherObjectiveAreRefusedWithTheRemedy) {
  auto line = line_of(oracle_of("texts", "dpo", "sigmoid"), 1, 0);
  std::erase_if(line, [](const std::string& word) {
    return word.starts_with("--objective") || word.starts_with("--beta") ||
           word.starts_with("--loss_type") || word.starts_with("--eval");
  });
  EXPECT_EQ(run(line), 1);
  EXPECT_THAT(stdout_text() + stderr_text(), HasSubstr("objective: dpo"));
  EXPECT_FALSE(fs::exists(out() / "metrics.jsonl"));
}

}  // namespace
}  // namespace dsj::run_test

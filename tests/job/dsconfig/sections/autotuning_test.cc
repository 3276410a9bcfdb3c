#include "job/dsconfig/sections/autotuning.h"

#include <gtest/gtest.h>

#include "job/dsconfig/resolve.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using Severity = Finding::Severity;

json tuned(const json& more = json::object()) {
  json section = {{"enabled", true}};
  section.update(more);
  return {{"train_micro_batch_size_per_gpu", 4},
          {"zero_optimization", {{"stage", 2}}},
          {"autotuning", section}};
}

std::vector<std::string> errors(const TuneRequest& request) {
  std::vector<std::string> paths;
  for (const Finding& finding : request.findings)
    if (finding.severity != Severity::Warning) paths.push_back(finding.path);
  return paths;
}

TEST(AutotuningTest, TheSectionLeavesTheFile) {
  const TuneRequest request = tune_request(tuned());
  EXPECT_TRUE(errors(request).empty());
  EXPECT_TRUE(request.asked);
  EXPECT_EQ(request.stages, std::vector<int>{2});
  EXPECT_TRUE(request.micro_batches.empty());
  json without = tuned();
  without.erase("autotuning");
  EXPECT_EQ(request.ds_config, without);
  EXPECT_FALSE(tune_request(without).asked);
  EXPECT_EQ(tune_request(json::object()).stages, std::vector<int>{0}) << "as in DeepSpeed";
}

TEST(AutotuningTest, EveryKeyCounts) {
  const auto settings = [](const json& more) { return tune_request(tuned(more)).settings; };
  EXPECT_FALSE(settings({{"fast", false}}).fast);
  EXPECT_EQ(settings({{"results_dir", "r"}}).results_dir, "r");
  EXPECT_EQ(settings({{"exps_dir", "e"}}).exps_dir, "e");
  EXPECT_FALSE(settings({{"overwrite", false}}).overwrite);
  EXPECT_EQ(settings({{"start_profile_step", 4}}).start_profile_step, 4);
  EXPECT_EQ(settings({{"end_profile_step", 9}}).end_profile_step, 9);
  EXPECT_EQ(settings({{"metric", "latency"}}).metric, "latency");
  EXPECT_EQ(settings({{"metric", "FLOPS_per_gpu"}}).metric, "flops");
  EXPECT_EQ(settings({{"tuner_type", "model_based"}}).tuner_type, "model_based");
  EXPECT_EQ(settings({{"tuner_early_stopping", 7}}).tuner_early_stopping, 7);
  EXPECT_EQ(settings({{"tuner_num_trials", 8}}).tuner_num_trials, 8);
  EXPECT_EQ(settings({{"max_train_batch_size", 64}}).max_train_batch_size, 64);
  EXPECT_EQ(settings({{"min_train_batch_size", 2}}).min_train_batch_size, 2);
  EXPECT_EQ(settings({{"max_train_micro_batch_size_per_gpu", 16}}).max_micro_batch, 16);
  EXPECT_EQ(settings({{"min_train_micro_batch_size_per_gpu", 2}}).min_micro_batch, 2);
  EXPECT_EQ(settings({{"num_tuning_micro_batch_sizes", 5}}).micro_batch_sizes, 5);
  for (const json& fine :
       {json{{"mp_size", 1}}, json{{"arg_mappings", {{"a", "--a"}}}}, json{{"metric_path", "m"}},
        json{{"model_info", {{"num_params", 3}}}}, json{{"model_info_path", "m"}}})
    EXPECT_TRUE(errors(tune_request(tuned(fine))).empty()) << fine;
}

TEST(AutotuningTest, WhatCannotBeIsAnError) {
  const auto wrong = [](const json& more) { return errors(tune_request(tuned(more))); };
  const auto at = [](const char* key) {
    return std::vector<std::string>{std::string("autotuning.") + key};
  };
  EXPECT_EQ(wrong({{"start_profile_step", 6}}), at("start_profile_step"));
  EXPECT_EQ(wrong({{"min_train_micro_batch_size_per_gpu", 2048}}),
            at("min_train_micro_batch_size_per_gpu"));
  EXPECT_EQ(wrong({{"min_train_batch_size", 9}, {"max_train_batch_size", 8}}),
            at("max_train_batch_size"));
  EXPECT_EQ(wrong({{"results_dir", ""}}), at("results_dir"));
  EXPECT_EQ(wrong({{"exps_dir", ""}}), at("exps_dir"));
  EXPECT_EQ(wrong({{"exps_dir", "autotuning_results"}}), at("exps_dir"));
  EXPECT_EQ(wrong({{"metric", "speed"}}), at("metric"));
  EXPECT_EQ(wrong({{"tuner_type", "xgboost"}}), at("tuner_type"));
  EXPECT_EQ(wrong({{"tuner_num_trials", 0}}), at("tuner_num_trials"));
  EXPECT_EQ(wrong({{"mp_size", 2}}), at("mp_size")) << "refused: no model parallelism";
}

TEST(AutotuningTest, ListsAreWhatIsTried) {
  json config = tuned();
  config["zero_optimization"]["stage"] = "all";
  config["train_micro_batch_size_per_gpu"] = {8, 2, 8};
  TuneRequest request = tune_request(config);
  EXPECT_TRUE(errors(request).empty());
  EXPECT_EQ(request.stages, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(request.micro_batches, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(request.ds_config["train_micro_batch_size_per_gpu"], 2);
  EXPECT_EQ(request.ds_config["zero_optimization"]["stage"], 0);
  config["zero_optimization"]["stage"] = {1, 3};
  EXPECT_EQ(tune_request(config).stages, (std::vector<int>{1, 3}));
  config["zero_optimization"]["stage"] = {1, 4};
  EXPECT_EQ(errors(tune_request(config)), std::vector<std::string>{"zero_optimization.stage"});
  config["zero_optimization"]["stage"] = 1;
  config["train_micro_batch_size_per_gpu"] = json::array();
  EXPECT_EQ(errors(tune_request(config)),
            std::vector<std::string>{"train_micro_batch_size_per_gpu"});
}

TEST(AutotuningTest, ARunRefusesASearchAndIgnoresOneThatIsOff) {
  TrainingArgs training;
  training.max_steps = 3;
  const Resolution search = resolve(tuned(), training, {});
  EXPECT_FALSE(search.runnable());
  EXPECT_EQ(search.findings.back().path, "autotuning");
  EXPECT_NE(search.findings.back().hint.find("dsj tune"), std::string::npos);
  const Resolution off =
      resolve(tuned({{"enabled", false}, {"tuner_type", "random"}}), training, {});
  EXPECT_TRUE(off.runnable());
  EXPECT_TRUE(off.findings.empty());
}

}  // namespace
}  // namespace dsj::dsconfig

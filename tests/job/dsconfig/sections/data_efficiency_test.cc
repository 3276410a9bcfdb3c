// The three sections that ask for a curriculum, and random-LTD's: what they become, what is refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "job/dsconfig/keys/metric_curriculum.h"
#include "job/dsconfig/keys/resolved_json.h"
#include "job/dsconfig/resolve.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using Severity = Finding::Severity;

const json kSchedule = {
    {"min_difficulty", 8},
    {"max_difficulty", 64},
    {"schedule_type", "fixed_linear"},
    {"schedule_config", {{"total_curriculum_step", 10}, {"difficulty_step", 8}}}};

json merged(json base, const json& more) {
  if (!more.is_null()) base.merge_patch(more);
  return base;
}

enum class Form { Legacy, Printed, Metric };

json config(Form form, const json& more = {}) {
  json out = {{"train_micro_batch_size_per_gpu", 1}};
  const json on = {{"enabled", true}};
  switch (form) {
    case Form::Legacy:
      out["curriculum_learning"] = merged(merged(kSchedule, on), more);
      break;
    case Form::Printed:
      out["data_efficiency"]["curriculum_learning"] = merged(merged(kSchedule, on), more);
      break;
    case Form::Metric:
      out["data_efficiency"]["data_sampling"]["curriculum_learning"] = {
          {"enabled", true},
          {"curriculum_metrics",
           {{"seqlen", merged(merged(kSchedule, {{"difficulty_type", "value"},
                                                 {"clustering_type", "single_cluster"}}),
                              more)}}}};
      break;
  }
  return out;
}

Resolution resolved(const json& ds_config, const Facts& facts = {}) {
  TrainingArgs training;
  training.max_steps = 100;
  return resolve(ds_config, training, facts);
}

/// "PATH: message" of the only finding that is no warning; else how many there are.
std::string refusal(const json& ds_config, const Facts& facts = {}) {
  std::vector<std::string> said;
  for (const Finding& finding : resolved(ds_config, facts).findings)
    if (finding.severity != Severity::Warning) said.push_back(finding.path);
  return said.size() == 1 ? said[0] : std::to_string(said.size()) + " problems";
}

std::vector<std::string> warned(const Resolution& resolution) {
  std::vector<std::string> paths;
  for (const Finding& finding : resolution.findings)
    if (finding.severity == Severity::Warning) paths.push_back(finding.path);
  return paths;
}

std::string path_of(Form form) {
  switch (form) {
    case Form::Legacy:
      return "curriculum_learning";
    case Form::Printed:
      return "data_efficiency.curriculum_learning";
    case Form::Metric:
      break;
  }
  return "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.seqlen";
}

constexpr Form kForms[] = {Form::Legacy, Form::Printed, Form::Metric};

TEST(CurriculumConfigTest, ThreeFormsAreOneCurriculum) {
  for (const Form form : kForms) {
    const Resolution resolution = resolved(config(form));
    ASSERT_TRUE(resolution.runnable()) << path_of(form);
    const auto& length = resolution.config.data_efficiency.row_length;
    ASSERT_TRUE(length);
    EXPECT_EQ(length->metric, "seqlen");
    EXPECT_EQ(length->schedule.at(5), 32);
    EXPECT_EQ(length->schedule.may_round_below_min, form == Form::Legacy);
    EXPECT_EQ(to_json(resolution.config)["data_efficiency"]["row_length"]["max_difficulty"], 64);
    EXPECT_EQ(warned(resolution),
              form == Form::Printed ? std::vector{path_of(form)} : std::vector<std::string>{})
        << "DeepSpeed ignores the printed form";
  }
}

TEST(CurriculumConfigTest, EveryKeyCounts) {
  const json root = {{"schedule_type", "fixed_root"}, {"schedule_config", {{"root_degree", 2}}}};
  const json list = {
      {"schedule_type", "fixed_discrete"},
      {"schedule_config", {{"difficulty", {16, 32}}, {"max_step", json::array({5})}}}};
  struct Change {
    json base, change;
  };
  for (const Form form : kForms) {
    for (const auto& [base, change] :
         {Change{{}, {{"min_difficulty", 16}}}, Change{{}, {{"max_difficulty", 128}}},
          Change{{}, root}, Change{{}, list},
          Change{{}, {{"schedule_config", {{"total_curriculum_step", 20}}}}},
          Change{{}, {{"schedule_config", {{"difficulty_step", 4}}}}},
          Change{root, {{"schedule_config", {{"root_degree", 3}}}}},
          Change{list, {{"schedule_config", {{"difficulty", {24, 32}}}}}},
          Change{list, {{"schedule_config", {{"max_step", json::array({6})}}}}}}) {
      const Resolution before = resolved(config(form, base)),
                       after = resolved(config(form, merged(base, change)));
      ASSERT_TRUE(before.runnable() && after.runnable()) << path_of(form) << change;
      EXPECT_NE(to_json(before.config)["data_efficiency"], to_json(after.config)["data_efficiency"])
          << path_of(form) << change;
    }
    EXPECT_EQ(refusal(config(form, {{"schedule_type", "custom"}})),
              path_of(form) + ".schedule_type");
    EXPECT_EQ(refusal(config(form, {{"schedule_type", "fixed_linaer"}})),
              path_of(form) + ".schedule_type");
    for (const char* key : {"min_difficulty", "max_difficulty", "schedule_type", "schedule_config"})
      EXPECT_EQ(refusal(config(form, {{key, nullptr}})), path_of(form) + "." + key);
    EXPECT_EQ(refusal(config(form, {{"min_difficulty", 65}})), path_of(form) + ".min_difficulty");
    const std::string numbers = path_of(form) + ".schedule_config.";
    EXPECT_EQ(refusal(config(form, {{"schedule_config", {{"difficulty_step", nullptr}}}})),
              numbers + "difficulty_step");
    EXPECT_EQ(refusal(config(form, {{"schedule_config", {{"total_curriculum_step", 0}}}})),
              numbers + "total_curriculum_step");
    EXPECT_EQ(refusal(config(form, merged(root, {{"schedule_config", {{"root_degree", 0}}}}))),
              numbers + "root_degree");
    EXPECT_EQ(refusal(config(form, merged(list, {{"schedule_config", {{"max_step", {5, 6}}}}}))),
              numbers + "max_step");
    EXPECT_EQ(
        refusal(config(form, merged(list, {{"schedule_config", {{"difficulty", {16, 2.5}}}}}))),
        numbers + "difficulty");
  }
  for (const Form form : {Form::Legacy, Form::Printed}) {
    EXPECT_EQ(refusal(config(form, {{"curriculum_type", "rarity"}})),
              path_of(form) + ".curriculum_type")
        << "DeepSpeed would do nothing, in silence";
    EXPECT_FALSE(resolved(config(form, {{"enabled", false}})).config.data_efficiency.row_length);
  }
}

TEST(CurriculumConfigTest, RowsOfFewerThanTwoTokensTeachNothing) {
  const json below = {{"schedule_config", {{"difficulty_step", 16}}}};
  EXPECT_EQ(refusal(config(Form::Legacy, below)), "curriculum_learning.min_difficulty")
      << "0.18.9 would begin with rows of no token";
  EXPECT_EQ(
      resolved(config(Form::Printed, below)).config.data_efficiency.row_length->schedule.at(1), 16);
  EXPECT_EQ(
      refusal(config(Form::Printed, {{"min_difficulty", 1},
                                     {"schedule_config",
                                      {{"difficulty_step", 1}, {"total_curriculum_step", 1000}}}})),
      path_of(Form::Printed) + ".min_difficulty");
}

TEST(CurriculumConfigTest, AMetricOfASingleClusterCutsRowsOrIsRefused) {
  const std::string path = path_of(Form::Metric);
  EXPECT_EQ(refusal(config(Form::Metric, {{"difficulty_type", "percentile"}})),
            path + ".difficulty_type");
  EXPECT_EQ(refusal(config(Form::Metric, {{"difficulty_type", "best"}})),
            path + ".difficulty_type");
  for (const char* key : {"difficulty_type", "clustering_type"})
    EXPECT_EQ(refusal(config(Form::Metric, {{key, nullptr}})), path + "." + key);
  EXPECT_EQ(refusal(config(Form::Metric, {{"minimum", 3}})), path + ".minimum");
  json other = config(Form::Metric);
  json& metrics =
      other["data_efficiency"]["data_sampling"]["curriculum_learning"]["curriculum_metrics"];
  const json metric = metrics["seqlen"];
  metrics = {{"seqlen_truncate", metric}};
  EXPECT_EQ(resolved(other).config.data_efficiency.row_length->metric, "seqlen_truncate");
  metrics = {{"seqlen_reshape", metric}};
  EXPECT_EQ(refusal(other).substr(path.size() - 6), "seqlen_reshape.clustering_type");
  metrics = json::object();
  EXPECT_EQ(refusal(other), path.substr(0, path.size() - 7));
  metrics = {{"seqlen", 3}};
  EXPECT_EQ(refusal(other), path);
}

TEST(CurriculumConfigTest, OnlyOneSectionCutsRows) {
  json both = config(Form::Legacy);
  both.update(config(Form::Printed));
  EXPECT_EQ(refusal(both), "data_efficiency.curriculum_learning.enabled");
}

TEST(CurriculumConfigTest, SwitchesOutsideActOnNothing) {
  json off = config(Form::Metric);
  off["data_efficiency"]["enabled"] = false;
  off["data_efficiency"]["data_sampling"]["enabled"] = false;
  const Resolution resolution = resolved(off);
  EXPECT_TRUE(resolution.config.data_efficiency.row_length) << "as in DeepSpeed";
  EXPECT_EQ(warned(resolution),
            (std::vector<std::string>{"data_efficiency.enabled",
                                      "data_efficiency.data_sampling.enabled"}));
  off["data_efficiency"]["data_sampling"]["curriculum_learning"]["enabled"] = false;
  EXPECT_FALSE(resolved(off).config.data_efficiency.row_length);
  EXPECT_TRUE(warned(resolved(off)).empty());
  EXPECT_FALSE(to_json(resolved(off).config).contains("data_efficiency"));
}

// ---- metrics that choose rows

/// Two metrics, with changes of the first.
json chosen(const json& more = {}) {
  const json value = {{"difficulty_type", "value"},
                      {"clustering_type", "schedule_based"},
                      {"index_to_sample_path", "m/rarity_index_to_sample"},
                      {"index_to_metric_path", "m/rarity_index_to_metric"}};
  const json percentile = {{"difficulty_type", "percentile"},
                           {"clustering_type", "schedule_based"},
                           {"index_to_sample_path", "m/length_index_to_sample"}};
  json out = {{"train_micro_batch_size_per_gpu", 1}};
  out["data_efficiency"]["data_sampling"]["curriculum_learning"] = {
      {"enabled", true},
      {"curriculum_metrics",
       {{"rarity", merged(merged(kSchedule, value), more)},
        {"length", merged(kSchedule, percentile)}}}};
  return out;
}

constexpr char kRarity[] =
    "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.rarity.";

TEST(MetricCurriculumTest, EveryKeyCounts) {
  const Resolution resolution = resolved(chosen());
  ASSERT_TRUE(resolution.runnable());
  EXPECT_TRUE(warned(resolution).empty());
  EXPECT_FALSE(resolution.config.data_efficiency.row_length);
  const auto found = metric_curricula(chosen());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].metric, "length");
  EXPECT_TRUE(found[0].percentile);
  EXPECT_EQ(difficulties(found, 5),
            (std::map<std::string, int64_t>{{"rarity", 32}, {"length", 32}}));
  const json was = to_json(found);
  for (const json& change :
       {json{{"min_difficulty", 16}}, json{{"max_difficulty", 128}},
        json{{"difficulty_type", "percentile"}}, json{{"index_to_sample_path", "n"}},
        json{{"index_to_metric_path", "n"}},
        json{{"schedule_config", {{"total_curriculum_step", 20}}}},
        json{{"schedule_config", {{"difficulty_step", 4}}}},
        json{{"clustering_type", "any other word"}, {"min_difficulty", 9}}}) {
    ASSERT_TRUE(resolved(chosen(change)).runnable()) << change;
    EXPECT_NE(to_json(metric_curricula(chosen(change))), was) << change;
  }
  const std::string path = kRarity;
  for (const char* key : {"index_to_sample_path", "index_to_metric_path"})
    for (const json& bad : {json(nullptr), json(""), json(3)})
      EXPECT_EQ(refusal(chosen({{key, bad}})), path + key) << bad;
  EXPECT_TRUE(
      resolved(chosen({{"difficulty_type", "percentile"}, {"index_to_metric_path", nullptr}}))
          .runnable());
}

TEST(MetricCurriculumTest, OnlyMetricsOfSeveralClustersChooseRows) {
  EXPECT_TRUE(metric_curricula(json::object()).empty());
  EXPECT_TRUE(metric_curricula(config(Form::Metric)).empty()) << "it cuts rows";
  json off = chosen();
  off["data_efficiency"]["data_sampling"]["curriculum_learning"]["enabled"] = false;
  EXPECT_TRUE(metric_curricula(off).empty());
}

TEST(MetricCurriculumTest, WhatWasAdmittedStays) {
  MetricCurriculum metric{
      .metric = "m", .schedule = {.min = 8, .max = 64, .total_steps = 10, .difficulty_step = 8}};
  const auto pairs = [&](int64_t steps) {
    std::vector<std::pair<int64_t, int64_t>> all;
    for (const auto& [step, difficulty] : metric.admitted(steps))
      all.emplace_back(step, difficulty);
    return all;
  };
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(pairs(3), (Pairs{{0, 8}, {1, 16}, {2, 24}}));
  EXPECT_EQ(pairs(100).back(), (std::pair<int64_t, int64_t>{9, 64}));
  metric.schedule = {.type = "fixed_discrete",
                     .min = 1,
                     .max = 9,
                     .difficulties = {5, 3, 7},
                     .last_steps = {2, 4}};
  EXPECT_EQ(pairs(6), (Pairs{{0, 5}, {4, 7}})) << "a list that goes down takes nothing back";
}

TEST(MetricCurriculumTest, WhatElseOrdersRowsIsRefused) {
  const auto refused = [](const TrainingArgs& args) {
    std::vector<std::string> paths;
    for (const Finding& finding : resolve(chosen(), args, {}).findings)
      if (finding.severity != Severity::Warning) paths.push_back(finding.path);
    return paths;
  };
  TrainingArgs args;
  args.max_steps = 10;
  EXPECT_TRUE(refused(args).empty());
  TrainingArgs packs = args, groups = args, file = args;
  packs.packing = true;
  groups.group_by_length = true;
  file.shuffle = false;
  EXPECT_EQ(refused(packs), std::vector<std::string>{"training.packing"});
  EXPECT_EQ(refused(groups), std::vector<std::string>{"training.groupByLength"});
  EXPECT_EQ(refused(file), std::vector<std::string>{"training.shuffle"});
}

// ---- random-LTD

constexpr char kLtd[] = "data_efficiency.data_routing.random_ltd";

json random_ltd(const json& more = {}) {
  const json section = {{"enabled", true},
                        {"total_layer_num", 12},
                        {"random_ltd_layer_num", 3},
                        {"random_ltd_layer_id", {3, 1, 2}},
                        {"model_mask_name", "attention_mask"},
                        {"model_type", "decoder"},
                        {"hidden_state_order", "batch_seq_dim"},
                        {"random_ltd_schedule",
                         {{"min_value", 16},
                          {"max_value", 64},
                          {"schedule_type", "fixed_linear"},
                          {"schedule_config", {{"require_steps", 10}, {"seq_per_step", 8}}}}}};
  json out = {{"train_micro_batch_size_per_gpu", 1}};
  out["data_efficiency"]["data_routing"]["random_ltd"] = merged(section, more);
  return out;
}

TEST(RandomLtdConfigTest, TheSectionBecomesLayersAndASchedule) {
  const Resolution resolution = resolved(random_ltd(), {.layers = 12});
  ASSERT_TRUE(resolution.runnable());
  EXPECT_TRUE(warned(resolution).empty());
  const auto& ltd = resolution.config.data_efficiency.random_ltd;
  ASSERT_TRUE(ltd);
  EXPECT_EQ(ltd->layers, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(ltd->kept(5), 40);
  EXPECT_FALSE(resolved(random_ltd({{"enabled", false}})).config.data_efficiency.random_ltd);
}

TEST(RandomLtdConfigTest, EveryKeyCounts) {
  const json was = to_json(resolved(random_ltd()).config)["data_efficiency"];
  for (const json& change :
       {json{{"random_ltd_layer_id", {1, 2, 4}}},
        json{{"random_ltd_schedule", {{"min_value", 24}}}},
        json{{"random_ltd_schedule", {{"max_value", 72}}}},
        json{{"random_ltd_schedule", {{"schedule_config", {{"require_steps", 11}}}}}},
        json{{"random_ltd_schedule", {{"schedule_config", {{"seq_per_step", 4}}}}}}}) {
    const Resolution after = resolved(random_ltd(change));
    ASSERT_TRUE(after.runnable()) << change;
    EXPECT_NE(to_json(after.config)["data_efficiency"], was) << change;
  }
  const std::string path = std::string(kLtd) + ".", schedule = path + "random_ltd_schedule.";
  EXPECT_EQ(refusal(random_ltd({{"random_ltd_layer_num", 4}})), path + "random_ltd_layer_num");
  EXPECT_EQ(refusal(random_ltd({{"random_ltd_layer_id", {1, 1, 2}}})),
            path + "random_ltd_layer_id");
  EXPECT_EQ(refusal(random_ltd(), {.layers = 3}), path + "random_ltd_layer_id");
  EXPECT_EQ(refusal(random_ltd({{"random_ltd_layer_id", json::array()}}), {.layers = 3}),
            path + "random_ltd_layer_num");
  EXPECT_EQ(refusal(random_ltd({{"model_type", "encoder"}})), path + "model_type");
  EXPECT_EQ(refusal(random_ltd({{"layer_token_lr_schedule", {{"enabled", true}}}})),
            path + "layer_token_lr_schedule");
  EXPECT_EQ(refusal(random_ltd({{"random_ltd_schedule", {{"schedule_type", "fixed_root"}}}})),
            schedule + "schedule_type");
  EXPECT_EQ(refusal(random_ltd({{"random_ltd_schedule", {{"min_value", 65}}}})),
            schedule + "min_value");
  EXPECT_EQ(refusal(random_ltd({{"random_ltd_schedule", {{"min_value", 7}}}})),
            schedule + "min_value")
      << "7 is rounded down to 0";
  for (const char* key : {"random_ltd_layer_num", "random_ltd_layer_id", "random_ltd_schedule"})
    EXPECT_EQ(refusal(random_ltd({{key, nullptr}})), path + key);
  for (const char* key : {"min_value", "max_value", "schedule_type", "schedule_config"})
    EXPECT_EQ(refusal(random_ltd({{"random_ltd_schedule", {{key, nullptr}}}})), schedule + key);
  for (const char* key : {"require_steps", "seq_per_step"})
    EXPECT_EQ(
        refusal(random_ltd({{"random_ltd_schedule", {{"schedule_config", {{key, nullptr}}}}}})),
        schedule + "schedule_config." + key);
}

TEST(RandomLtdConfigTest, APackIsNotShortened) {
  TrainingArgs args;
  args.packing = true;
  const Resolution resolution = resolve(random_ltd(), args, {});
  ASSERT_FALSE(resolution.runnable());
  EXPECT_TRUE(std::ranges::any_of(resolution.findings, [](const Finding& finding) {
    return finding.path == "training.packing" &&
           finding.message.find("random-LTD shortens rows") != std::string::npos;
  }));
}

}  // namespace
}  // namespace dsj::dsconfig

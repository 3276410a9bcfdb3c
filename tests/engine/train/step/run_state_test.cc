#include "engine/train/step/run_state.h"

#include <gtest/gtest.h>

namespace dsj::train {
namespace {

using nlohmann::json;

JobFile job(const std::string& run, const std::optional<std::string>& from) {
  JobFile job{.run = run};
  job.training.resume_from_checkpoint = from;
  return job;
}

TEST(RunStateTest, ARunIsTheSameWithTheSameIdFromTheSamePlace) {
  EXPECT_TRUE(begun(job("a", {})).is_null());
  EXPECT_TRUE(begun(job("a", "true")).is_null());
  const json here = begun(job("a", "/x/step-2"));
  EXPECT_TRUE(saved_by(here, {{"begun", here}}));
  EXPECT_FALSE(saved_by(here, {{"begun", begun(job("b", "/x/step-2"))}}));
  EXPECT_FALSE(saved_by(here, {{"begun", begun(job("a", "false"))}}));
  EXPECT_FALSE(saved_by(here, {{"begun", nullptr}}));
  EXPECT_FALSE(saved_by(here, json::object())) << "of an older program";
  const json unknown = begun(job("", "false"));
  EXPECT_FALSE(saved_by(unknown, {{"begun", unknown}}));
}

TEST(RunStateTest, DifferencesAreNamedWithBothValues) {
  const json saved = {
      {"optimizer", "AdamW"}, {"seed", 1}, {"packed_rows", 0}, {"world_size", 2}, {"stage", 2}};
  EXPECT_TRUE(differences(saved, saved).empty());
  EXPECT_TRUE(differences(json::object(), saved).empty()) << "of an older program";
  json now = saved;
  now["optimizer"] = "Lion";
  now["seed"] = 7;
  now["packed_rows"] = 31;
  now["world_size"] = 4;
  const auto said = differences(saved, now);
  ASSERT_EQ(said.size(), 4u);
  EXPECT_NE(said[0].find("was AdamW and is Lion"), std::string::npos) << said[0];
  EXPECT_NE(said[1].find("seed was 1"), std::string::npos) << said[1];
  EXPECT_NE(said[1].find("the order of the data changes"), std::string::npos) << said[1];
  EXPECT_NE(said[2].find("packed_rows was 0"), std::string::npos) << said[2];
  EXPECT_NE(said[3].find("world_size 2 → 4"), std::string::npos) << said[3];
  EXPECT_EQ(said[3].find("stage"), std::string::npos) << "it is the same";
  now = saved;
  now["data_efficiency"] = {{"random_ltd", {{"min_value", 8}}}};
  json before = saved;
  before["data_efficiency"] = json::object();
  ASSERT_EQ(differences(before, now).size(), 1u);
  EXPECT_NE(differences(before, now)[0].find("data_efficiency {} → "), std::string::npos);
}

/// Checkpoints from before the rule was recorded are known by what they lack.
TEST(RunStateTest, AnOlderOrderOfTheRowsIsSaid) {
  json old = {{"shuffle", true}, {"train_batch_size", 32}};
  json now = old;
  now["loss_normalization"] = "token";
  now["order_rule"] = 2;
  now["data"] = {{"rows", 33}, {"split_rows", 0}};
  ASSERT_EQ(differences(old, now).size(), 1u);
  EXPECT_NE(differences(old, now)[0].find("of an older program"), std::string::npos);
  EXPECT_NE(differences(old, now)[0].find("the order of the data changes"), std::string::npos);
  now["data"]["rows"] = 64;
  EXPECT_TRUE(differences(old, now).empty()) << "whole batches: both rules deal alike";
  now["data"]["split_rows"] = 1;
  EXPECT_EQ(differences(old, now).size(), 1u);
  now["packed_rows"] = 96;
  EXPECT_TRUE(differences(old, now).empty());
  now["packed_rows"] = 0;
  EXPECT_TRUE(differences(now, now).empty());
  old["loss_normalization"] = "token";
  EXPECT_TRUE(differences(old, now).empty()) << "it came with the rule";
  EXPECT_TRUE(differences({{"step", 4}}, now).empty()) << "DeepSpeed's";
}

}  // namespace
}  // namespace dsj::train

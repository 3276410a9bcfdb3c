#include "job/dsconfig/config/objective.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "job/dsconfig/config/loss_normalization.h"
#include "job/dsconfig/resolve.h"

namespace dsj::dsconfig {
namespace {

TrainingArgs with(const char* objective) {
  TrainingArgs args;
  args.objective = objective;
  args.max_steps = 2;
  args.learning_rate = 1e-6;
  return args;
}

/// The finding's message at a path; empty: there is none that keeps the run from starting.
std::string refused(const TrainingArgs& args, const std::string& path,
                    const nlohmann::json& config = {{"train_batch_size", 2}}) {
  for (const Finding& finding : resolve(config, args, {.world_size = 1}).findings)
    if (finding.path == path && finding.severity != Finding::Severity::Warning)
      return finding.message;
  return {};
}

TEST(Objective, HasTrlsDefaults) {
  EXPECT_EQ(objective_of({}).kind, Objective::Kind::Sft);
  const Objective dpo = objective_of(with("dpo"));
  EXPECT_EQ(dpo.kind, Objective::Kind::Dpo);
  EXPECT_EQ(dpo.loss, PairLoss::Sigmoid);
  EXPECT_EQ(dpo.beta, 0.1);
  EXPECT_EQ(dpo.label_smoothing, 0);
  EXPECT_EQ(dpo.rows_of_sample(), 2);
  EXPECT_TRUE(dpo.has_reference());
  EXPECT_FALSE(objective_of(with("orpo")).has_reference());
  EXPECT_FALSE(objective_of(with("pretrain")).judges());
  for (const Objective::Kind kind :
       {Objective::Kind::Sft, Objective::Kind::Pretrain, Objective::Kind::Dpo,
        Objective::Kind::Orpo, Objective::Kind::Kto})
    EXPECT_EQ(objective_of(with(name_of(kind).c_str())).kind, kind);
}

TEST(Objective, TakesEveryLossOfItsChoices) {
  const char* names[] = {"sigmoid",  "hinge",     "ipo",      "robust",   "exo_pair",    "nca_pair",
                         "bco_pair", "sppo_hard", "apo_zero", "apo_down", "sigmoid_norm"};
  int place = 0;
  for (const char* name : names) {
    TrainingArgs args = with("dpo");
    args.loss_type = name;
    if (args.loss_type == "exo_pair") args.label_smoothing = 1e-3;
    EXPECT_EQ(static_cast<int>(objective_of(args).loss), place++) << name;
    EXPECT_TRUE(resolve({{"train_batch_size", 2}}, args, {.world_size = 1}).ok()) << name;
  }
}

TEST(Objective, DftIsALossOfSftAndPretrain) {
  for (const char* name : {"sft", "pretrain"}) {
    TrainingArgs args = with(name);
    EXPECT_FALSE(objective_of(args).dft);
    args.loss_type = "dft";
    EXPECT_TRUE(objective_of(args).dft);
    EXPECT_TRUE(resolve({{"train_batch_size", 2}}, args, {.world_size = 1}).ok()) << name;
    args.label_smoothing_factor = 0.1;
    EXPECT_NE(refused(args, "training.labelSmoothingFactor").find("dft"), std::string::npos);
  }
}

TEST(Objective, WhatActsWithAnotherOneIsRefusedByName) {
  TrainingArgs args = with("sft");
  args.beta = 0.2;
  EXPECT_NE(refused(args, "training.beta").find("dpo"), std::string::npos);
  args = with("orpo");
  args.loss_type = "ipo";
  EXPECT_NE(refused(args, "training.lossType"), "");
  args = with("dpo");
  args.loss_type = "nll";
  EXPECT_NE(refused(args, "training.lossType"), "");
  args.loss_type = "dft";
  EXPECT_NE(refused(args, "training.lossType").find("objective sft"), std::string::npos);
  args.loss_type = "ipo";
  args.label_smoothing = 0.1;
  EXPECT_NE(refused(args, "training.labelSmoothing"), "");
  args.loss_type = "exo_pair";
  args.label_smoothing.reset();
  EXPECT_NE(refused(args, "training.labelSmoothing"), "");
  args = with("dpo");
  args.packing = true;
  args.mask_history = true;
  args.loss_normalization = "token";
  args.train_on_eos = "none";
  args.label_smoothing_factor = 0.1;
  for (const char* field :
       {"packing", "maskHistory", "lossNormalization", "trainOnEos", "labelSmoothingFactor"})
    EXPECT_NE(refused(args, std::string("training.") + field).find("objective dpo"),
              std::string::npos)
        << field;
  args = with("kto");
  args.rpo_alpha = 0.5;
  EXPECT_NE(refused(args, "training.rpoAlpha").find("objective dpo"), std::string::npos);
  args = with("dpo");
  args.rpo_alpha = 0.5;
  EXPECT_EQ(objective_of(args).sft_weight, 0.5);
  EXPECT_EQ(refused(args, "training.rpoAlpha"), "");
  args.train_on_inputs = true;
  EXPECT_NE(refused(args, "training.trainOnInputs").find("objective dpo"), std::string::npos);
  EXPECT_NE(
      refused(with("dpo"), "training.objective",
              {{"train_batch_size", 2},
               {"curriculum_learning",
                {{"enabled", true},
                 {"curriculum_type", "seqlen"},
                 {"min_difficulty", 8},
                 {"max_difficulty", 64},
                 {"schedule_type", "fixed_linear"},
                 {"schedule_config", {{"total_curriculum_step", 10}, {"difficulty_step", 8}}}}}})
          .find("whole answers"),
      std::string::npos);
  EXPECT_NE(refused(with("ppo"), "training.objective"), "");
}

TEST(Objective, RewardScoresWholeAnswers) {
  TrainingArgs args = with("reward");
  args.center_rewards_coefficient = 0.25;
  EXPECT_TRUE(objective_of(args).scores());
  EXPECT_TRUE(objective_of(args).judges());
  EXPECT_FALSE(objective_of(args).has_reference());
  EXPECT_EQ(objective_of(args).rows_of_sample(), 2);
  EXPECT_EQ(objective_of(args).center_rewards, 0.25);
  EXPECT_TRUE(resolve({{"train_batch_size", 2}}, args, {.world_size = 1}).ok());
  TrainingArgs other = with("dpo");
  other.center_rewards_coefficient = 0.25;
  EXPECT_NE(refused(other, "training.centerRewardsCoefficient").find("objective reward"),
            std::string::npos);
  const auto refuses = [&](const char* field, auto TrainingArgs::*member, auto value) {
    TrainingArgs more = with("reward");
    more.*member = value;
    EXPECT_NE(refused(more, field), "") << field;
  };
  refuses("training.beta", &TrainingArgs::beta, 0.1);
  refuses("training.maxPromptLength", &TrainingArgs::max_prompt_length, int64_t{3});
  refuses("training.lossType", &TrainingArgs::loss_type, "sigmoid");
  refuses("training.truncationSide", &TrainingArgs::truncation_side, "left");
  refuses("training.valSize", &TrainingArgs::val_size, 0.25);
  refuses("training.neftuneNoiseAlpha", &TrainingArgs::neftune_noise_alpha, 5.0);
  refuses("training.packing", &TrainingArgs::packing, true);
}

TEST(Objective, KtoHasItsOwnLossesAndWeights) {
  TrainingArgs args = with("kto");
  args.desirable_weight = 1.5;
  EXPECT_EQ(objective_of(args).mark_loss, MarkLoss::Kto);
  EXPECT_TRUE(objective_of(args).estimates_kl());
  EXPECT_EQ(objective_of(args).rows_of_sample(), 1);
  EXPECT_EQ(objective_of(args).desirable_weight, 1.5);
  EXPECT_TRUE(resolve({{"train_batch_size", 2}}, args, {.world_size = 1}).ok());
  args.loss_type = "apo_zero_unpaired";
  EXPECT_FALSE(objective_of(args).estimates_kl());
  EXPECT_TRUE(resolve({{"train_batch_size", 2}}, args, {.world_size = 1}).ok());
  args.loss_type = "sigmoid";
  EXPECT_NE(refused(args, "training.lossType").find("objective dpo"), std::string::npos);
  args = with("dpo");
  args.loss_type = "kto";
  EXPECT_NE(refused(args, "training.lossType").find("objective kto"), std::string::npos);
  args = with("dpo");
  args.desirable_weight = 1.5;
  EXPECT_NE(refused(args, "training.desirableWeight"), "");
}

/// TRL's block is a rank's micro-batch; a micro-batch of one row takes the answers of a step's rows.
TEST(Objective, AnswersChangePlacesWithinAMicroBatch) {
  EXPECT_EQ(rotated_rows(4, 32), 4);
  EXPECT_EQ(rotated_rows(1, 8), 8);
  EXPECT_EQ(rotated_rows(1, 1), 2);
}

TEST(Objective, TheMicroBatchesMeanIsItsNormalization) {
  EXPECT_EQ(loss_normalization(with("dpo")), LossNormalization::MicroBatch);
  EXPECT_EQ(loss_normalization(with("sft")), LossNormalization::Token);
  TrainingArgs args = with("dpo");
  args.loss_normalization = "micro-batch";
  EXPECT_TRUE(resolve({{"train_batch_size", 2}}, args, {.world_size = 1}).ok());
}

TEST(Objective, AnUnwrittenLearningRateIsSaid) {
  TrainingArgs args = with("dpo");
  args.learning_rate.reset();
  const auto findings = resolve({{"train_batch_size", 2}}, args, {.world_size = 1}).findings;
  EXPECT_EQ(std::ranges::count(findings, "training.learningRate", &Finding::path), 1);
}

}  // namespace
}  // namespace dsj::dsconfig

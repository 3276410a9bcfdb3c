// load_best_model_at_end, save_strategy best and early stopping, resolved. What is refused, transformers 5.24
// refuses: TrainingArguments.__post_init__, Trainer.__init__, EarlyStoppingCallback.on_train_begin.
#include <gtest/gtest.h>

#include "tests/job/dsconfig/said.h"

namespace dsj::dsconfig {
namespace {

using Severity = Finding::Severity;

/// A run that evaluates and saves every 2 of 20 steps.
TrainingArgs evaluated() {
  TrainingArgs args;
  args.max_steps = 20;
  args.evaluation_strategy = "steps";
  args.eval_steps = 2;
  args.save_steps = 2;
  args.eval_data_path = "eval.json";
  return args;
}

Resolution of(const TrainingArgs& args) {
  return resolve({{"train_batch_size", 8}}, args, {.world_size = 2, .dataset_rows = 100});
}

TEST(BestTest, NothingIsFollowedUnlessAsked) {
  EXPECT_FALSE(of(evaluated()).config.eval.best.on());
  TrainingArgs args = evaluated();
  args.metric_for_best_model = "loss";
  EXPECT_FALSE(of(args).config.eval.best.on());
}

TEST(BestTest, EachArgumentReachesItsField) {
  TrainingArgs args = evaluated();
  args.load_best_model_at_end = true;
  args.early_stopping_patience = 3;
  args.early_stopping_threshold = 0.25;
  const auto r = of(args);
  ASSERT_TRUE(r.runnable()) << errors_said(r);
  const BestConfig& best = r.config.eval.best;
  EXPECT_TRUE(best.load && !best.save && !best.greater);
  EXPECT_EQ(best.patience, 3);
  EXPECT_EQ(best.threshold, 0.25);
  args.greater_is_better = true;
  EXPECT_TRUE(of(args).config.eval.best.greater);
  EXPECT_FALSE(said(of(args), Severity::Warning).empty()) << "the largest loss: told";
  args.greater_is_better.reset();
  args.metric_for_best_model = "eval_loss";
  EXPECT_TRUE(of(args).runnable());
  args.metric_for_best_model = "accuracy";
  EXPECT_NE(errors_said(of(args)).find("eval_loss is the only one"), std::string::npos);
}

TEST(BestTest, SavesAndEvaluationsGoTogether) {
  struct Case {
    double save, eval;
    bool ok;
  };
  for (const Case& c :
       {Case{4, 2, true}, Case{2, 4, false}, Case{6, 4, false}, Case{0.5, 0.25, true},
        Case{0.5, 0.2, false}, Case{0.5, 2, false}, Case{4, 0.1, false}}) {
    TrainingArgs args = evaluated();
    args.load_best_model_at_end = true;
    args.save_steps = c.save;
    args.eval_steps = c.eval;
    EXPECT_EQ(of(args).ok(), c.ok) << c.save << " " << c.eval << " " << errors_said(of(args));
  }
  TrainingArgs args = evaluated();
  args.load_best_model_at_end = true;
  args.save_strategy = "epoch";
  EXPECT_NE(errors_said(of(args)).find("have to be the same"), std::string::npos);
  args.save_strategy = "best";  // saves when it is the best: no multiple is needed
  args.save_steps = 7;
  EXPECT_TRUE(of(args).runnable()) << errors_said(of(args));
  EXPECT_TRUE(of(args).config.eval.best.save);
  EXPECT_EQ(of(args).config.save.kind, Cadence::Kind::Never);
}

/// One finding for a metric that there is not; none about an argument that nobody gave.
TEST(BestTest, AMetricThatIsNotThereIsTheOnlyFinding) {
  TrainingArgs args = evaluated();
  args.load_best_model_at_end = true;
  args.metric_for_best_model = "accuracy";
  EXPECT_NE(errors_said(of(args)).find("no metric \"accuracy\""), std::string::npos);
  EXPECT_EQ(said(of(args), Severity::Warning).find("greaterIsBetter"), std::string::npos);
}

TEST(BestTest, WhatNeedsAMetricOrEvaluations) {
  TrainingArgs args = evaluated();
  args.save_strategy = "best";
  EXPECT_NE(errors_said(of(args)).find("metricForBestModel"), std::string::npos);
  args.metric_for_best_model = "loss";
  EXPECT_TRUE(of(args).runnable());
  args.evaluation_strategy = "no";
  args.eval_data_path.reset();
  EXPECT_NE(errors_said(of(args)).find("needs evaluations"), std::string::npos);
  args = evaluated();
  args.early_stopping_patience = 2;
  EXPECT_NE(errors_said(of(args)).find("metricForBestModel"), std::string::npos);
  args.metric_for_best_model = "loss";
  EXPECT_TRUE(of(args).runnable());
  EXPECT_NE(said(of(args), Severity::Warning).find("the last model is exported"),
            std::string::npos);
  args.early_stopping_patience = 0;
  EXPECT_FALSE(of(args).ok());
}

}  // namespace
}  // namespace dsj::dsconfig

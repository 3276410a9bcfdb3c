#include "engine/train/step/best.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace dsj::train {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Sequence {
  std::vector<double> losses;  ///< of evaluations 1, 2, 3 ...
  bool greater;
  int64_t patience;
  double threshold;
  int64_t stops_after;  ///< evaluations; 0: it does not
  int64_t best;         ///< the evaluation that is the best then
};

/// Drawn losses, and what Trainer._determine_best_metric and EarlyStoppingCallback.check_metric_value of
/// transformers 5.24 made of them.
TEST(Best, IsTransformersBest) {
  const std::vector<Sequence> sequences = {};
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& one = sequences[i];
    SCOPED_TRACE("sequence " + std::to_string(i));
    const dsconfig::BestConfig config{
        .load = true, .greater = one.greater, .patience = one.patience, .threshold = one.threshold};
    Best best;
    int64_t step = 0;
    for (const double loss : one.losses) {
      count_evaluation(config, ++step, loss, best);
      best = best_from_json(to_json(best), config);  // a restart between any two changes nothing
      if (best.stopped) break;
    }
    EXPECT_EQ(best.stopped ? step : 0, one.stops_after);
    EXPECT_EQ(best.step, one.best);
  }
}

/// Trainer loads the best of the evaluations that were saved at their step.
TEST(Best, TheCheckpointIsOfAnEvaluationThatWasSaved) {
  const dsconfig::BestConfig config{.load = true};
  Best best;
  EXPECT_TRUE(count_evaluation(config, 2, 3.0, best));
  EXPECT_FALSE(best.checkpoint) << "nothing is saved yet";
  count_save(2, best);
  EXPECT_EQ(best.checkpoint, 2);
  EXPECT_TRUE(count_evaluation(config, 4, 2.0, best));
  count_save(6, best);
  EXPECT_EQ(best.checkpoint, 2) << "step 4, the best, was not saved";
  EXPECT_FALSE(count_evaluation(config, 8, 2.5, best));
  count_save(8, best);
  EXPECT_EQ(best.checkpoint, 2);
}

TEST(Best, CountsNothingUnlessAsked) {
  Best best;
  EXPECT_FALSE(count_evaluation({}, 1, 1.0, best));
  EXPECT_TRUE(to_json(best).is_null());
  const dsconfig::BestConfig stops{.patience = 1};
  count_evaluation(stops, 1, 1.0, best);
  count_evaluation(stops, 2, 2.0, best);
  EXPECT_TRUE(best.stopped);
  EXPECT_FALSE(best_from_json(to_json(best), {.load = true}).stopped)
      << "without early stopping the run goes on";
  EXPECT_FALSE(best_from_json(nullptr, stops).loss);
  EXPECT_FALSE(best_from_json({{"step", "x"}, {"eval_loss", {}}}, stops).loss) << "foreign text";
}

}  // namespace
}  // namespace dsj::train

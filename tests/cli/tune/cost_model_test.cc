#include "cli/tune/cost_model.h"

#include <gtest/gtest.h>

#include <vector>

namespace dsj::tune {
namespace {

double truth(const Counts& counts) {
  return 3e-9 * counts.products + 5e-8 * counts.weights + 1e-8 * counts.wire_bytes +
         1e-5 * counts.actions;
}

TEST(CostModel, OneMeasurementIsReproducedAndScales) {
  const Counts counts{.products = 1e9, .weights = 1e6, .wire_bytes = 1e6, .actions = 100};
  const std::vector<CostModel::Measured> one = {{counts, 4.0}};
  const CostModel model(one);
  EXPECT_NEAR(model.seconds(counts), 4.0, 1e-9);
  Counts twice = counts;
  twice.products *= 2;
  EXPECT_GT(model.seconds(twice), 6.0);
  EXPECT_LT(model.seconds(twice), 8.0) << "the rest does not double";
}

TEST(CostModel, WeightsFollowTheMeasurements) {
  std::vector<CostModel::Measured> all;
  for (const double products : {1e9, 2e9, 8e9})
    for (const double wire : {0.0, 4e7, 4e8})
      for (const double steps : {1.0, 4.0}) {
        const Counts counts{.products = products,
                            .weights = steps * 2e7,
                            .wire_bytes = wire,
                            .actions = steps * 50};
        all.push_back({counts, truth(counts)});
      }
  const CostModel model(all);
  const Counts unseen{.products = 4e9, .weights = 2 * 2e7, .wire_bytes = 2e8, .actions = 100};
  EXPECT_NEAR(model.seconds(unseen) / truth(unseen), 1.0, 0.05);
}

TEST(CostModel, NoWeightIsNegative) {
  const Counts little{.products = 1, .weights = 1, .wire_bytes = 1, .actions = 1};
  Counts wire = little;
  wire.wire_bytes = 100;
  const std::vector<CostModel::Measured> all = {{little, 2.0}, {wire, 1.0}};
  const CostModel model(all);
  for (const double bytes : {0.0, 1.0, 1e3, 1e6}) {
    wire.wire_bytes = bytes;
    EXPECT_GT(model.seconds(wire), 0);
  }
}

}  // namespace
}  // namespace dsj::tune

#include "engine/data/batches/cluster_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace dsj::data {
namespace {

/// Rows 0-9 from the start, 10-14 from step 3, 15-39 from step 7.
std::shared_ptr<const Clusters> three() {
  Clusters clusters;
  for (int64_t row = 0; row < 40; ++row) clusters.rows.push_back(row);
  clusters.starts = {0, 10, 15, 40};
  clusters.first_steps = {0, 3, 7};
  return std::make_shared<const Clusters>(std::move(clusters));
}

std::vector<int64_t> rows_of_step(ClusterOrder& order, int64_t step, int64_t batch) {
  std::vector<int64_t> rows;
  for (int64_t place = 0; place < batch; ++place) rows.push_back(order.row(step, place));
  return rows;
}

TEST(ClusterOrder, OnlyAdmittedRowsAreDealt) {
  ClusterOrder order(three(), 4, 42);
  for (int64_t step = 0; step < 30; ++step)
    for (const int64_t row : rows_of_step(order, step, 4))
      EXPECT_LT(row, step < 3 ? 10 : step < 7 ? 15 : 40) << "step " << step;
}

/// No row of a cluster repeats before all its rows were dealt, even if others are admitted.
TEST(ClusterOrder, NoRowRepeatsBeforeItsWholeClusterWasDealt) {
  ClusterOrder order(three(), 4, 7);
  std::map<int64_t, int64_t> seen;
  for (int64_t step = 0; step < 60; ++step) {
    for (const int64_t row : rows_of_step(order, step, 4)) ++seen[row];
    for (const auto& [first, last] : {std::pair{0, 10}, {10, 15}, {15, 40}}) {
      int64_t least = INT64_MAX, most = 0;
      for (int64_t row = first; row < last; ++row) {
        least = std::min(least, seen[row]);
        most = std::max(most, seen[row]);
      }
      EXPECT_LE(most - least, 1) << "step " << step;
    }
  }
}

/// Clusters are taken in proportion to size: one pass over the admitted rows takes each completely.
TEST(ClusterOrder, OnePassTakesEachClusterCompletely) {
  ClusterOrder order(three(), 5, 1);
  std::multiset<bool> second;
  for (int64_t step = 3; step < 6; ++step)
    for (const int64_t row : rows_of_step(order, step, 5)) second.insert(row >= 10);
  EXPECT_EQ(second.count(true), 5u);
  std::map<int64_t, int64_t> seen;
  for (int64_t step = 7; step < 15; ++step)
    for (const int64_t row : rows_of_step(order, step, 5)) seen[row / 5]++;
  EXPECT_EQ(seen[0] + seen[1], 10);
  EXPECT_EQ(seen[2], 5);
}

TEST(ClusterOrder, AStepDoesNotDependOnEarlierCalls) {
  ClusterOrder straight(three(), 4, 42), other(three(), 4, 43);
  bool differs = false;
  for (int64_t step = 0; step < 40; ++step) {
    const auto rows = rows_of_step(straight, step, 4);
    ClusterOrder begun_here(three(), 4, 42);
    EXPECT_EQ(rows_of_step(begun_here, step, 4), rows) << "step " << step;
    differs = differs || rows_of_step(other, step, 4) != rows;
  }
  EXPECT_TRUE(differs) << "the seed decides";
  EXPECT_EQ(rows_of_step(straight, 5, 4), rows_of_step(straight, 5, 4));
  ClusterOrder back(three(), 4, 42);
  const auto later = rows_of_step(back, 20, 4);
  rows_of_step(back, 3, 4);
  EXPECT_EQ(rows_of_step(back, 20, 4), later);
}

}  // namespace
}  // namespace dsj::data

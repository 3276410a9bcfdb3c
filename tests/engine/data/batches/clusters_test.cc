// Which rows a curriculum admits: the rule on small examples, and the recorded runs of
// DeepSpeed, whose every row must be in the pool of its step.
#include "engine/data/batches/clusters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "common/files/memory_files.h"
#include "engine/data/batches/analysis.h"
#include "engine/data/batches/cluster_order.h"
#include "tests/engine/support/golden_runs.h"

namespace dsj::data {
namespace {

using nlohmann::json;
using testing_support::golden_directory;
using testing_support::read_golden;

MetricFiles metric(bool percentile, int64_t max, std::vector<Level> levels) {
  return {.name = "m",
          .percentile = percentile,
          .index_to_sample = metric_file("out", "m", "index_to_sample"),
          .index_to_metric = metric_file("out", "m", "index_to_metric"),
          .max_difficulty = max,
          .levels = std::move(levels)};
}

TEST(Clusters, AValueDifficultyIsTheRowsMetric) {
  MemoryFiles files;
  ASSERT_TRUE(write_metric(files, "out", "m", {9, 4, 9, 5}));
  const auto levels = row_levels(files, metric(false, 9, {}), 4, 1);
  ASSERT_TRUE(levels) << levels.error().to_string();
  EXPECT_EQ(*levels, (std::vector<int64_t>{4, 9, 5}));  // the first row is held out
}

TEST(Clusters, APercentileIsThePositionInTheOrderOfTheMetric) {
  MemoryFiles files;
  ASSERT_TRUE(write_metric(files, "out", "m", {50, 10, 40, 10, 30, 20, 60}));
  // In order: rows 1, 3, 5, 4, 2, 0, 6. Of 7 rows each of 3 parts has 2, and the last takes the rest.
  const auto levels = row_levels(files, metric(true, 3, {}), 7, 0);
  ASSERT_TRUE(levels) << levels.error().to_string();
  EXPECT_EQ(*levels, (std::vector<int64_t>{3, 1, 3, 1, 2, 2, 3}));
  // Fewer rows than parts: DeepSpeed admits none before the last.
  EXPECT_EQ(*row_levels(files, metric(true, 8, {}), 7, 0), std::vector<int64_t>(7, 8));
}

TEST(Clusters, FilesOfOtherDataAreRefused) {
  MemoryFiles files;
  ASSERT_TRUE(write_metric(files, "out", "m", {9, 4, 9, 5}));
  const auto refused = [&](const MetricFiles& what, int64_t rows) {
    const auto levels = row_levels(files, what, rows, 0);
    return levels ? std::string() : levels.error().to_string();
  };
  EXPECT_NE(refused(metric(false, 9, {}), 5).find("has 4 rows, the data has 5"), std::string::npos);
  MetricFiles twisted = metric(false, 9, {});
  twisted.index_to_metric = metric_file("out", "m", "sample_to_metric");
  EXPECT_NE(refused(twisted, 4).find("expected 3 lists of one value"), std::string::npos);
  twisted.index_to_sample = metric_file("out", "m", "sample_to_metric");
  EXPECT_NE(refused(twisted, 4).find("row 9 is not in the data"), std::string::npos);
  ASSERT_TRUE(write_metric(files, "out", "m", {1, 1, 2, 3}));
  EXPECT_NE(refused(twisted, 4).find("row 1 is listed twice"), std::string::npos);
}

TEST(Clusters, ARowIsAdmittedWhenAllMetricsAdmitIt) {
  const MetricLevels small{{1, 2, 3, 1, 9}, {{0, 2}, {5, 3}}};
  const MetricLevels other{{1, 1, 1, 7, 1}, {{0, 1}, {4, 7}}};
  const auto one = make_clusters(std::span(&small, 1));
  ASSERT_TRUE(one);
  EXPECT_EQ(one->rows, (std::vector<int64_t>{0, 1, 3, 2}));
  EXPECT_EQ(one->starts, (std::vector<int64_t>{0, 3, 4}));
  EXPECT_EQ(one->first_steps, (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(one->never, 1);
  const auto both = make_clusters(std::vector{small, other});
  ASSERT_TRUE(both);
  EXPECT_EQ(both->rows, (std::vector<int64_t>{0, 1, 3, 2}));
  EXPECT_EQ(both->first_steps, (std::vector<int64_t>{0, 4, 5}));
  const MetricLevels late{{5, 5}, {{0, 4}, {1, 5}}};
  const auto none = make_clusters(std::span(&late, 1));
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().to_string().find("raise min_difficulty"), std::string::npos);
}

/// The rows of a recorded run: each is in the pool of its step, and the pools of the percentile
/// runs are as large as the rule says.
TEST(ClustersGolden, EveryRecordedRowIsInThePool) {
  const auto recorded = golden_directory() / "curriculum";
  if (!std::filesystem::exists(recorded))
    GTEST_SKIP() << "skipped: " << recorded << " is not there";
  for (const char* name : {"de_value", "de_percentile", "de_two"}) {
    SCOPED_TRACE(name);
    const json golden = read_golden(recorded / (std::string(name) + ".json"));
    const json& metrics = golden["ds_config"]["data_efficiency"]["data_sampling"]
                                ["curriculum_learning"]["curriculum_metrics"];
    MemoryFiles files;
    std::vector<MetricFiles> all;
    for (const auto& [key, of_row] : golden["metric_of_sample"].items()) {
      ASSERT_TRUE(write_metric(files, "out", key, of_row.get<std::vector<int64_t>>()));
      all.push_back({.name = key,
                     .percentile = metrics[key]["difficulty_type"] == "percentile",
                     .index_to_sample = metric_file("out", key, "index_to_sample"),
                     .index_to_metric = metric_file("out", key, "index_to_metric"),
                     .max_difficulty = metrics[key]["max_difficulty"]});
      for (const json& step : golden["steps"]) {
        const int64_t difficulty = step["difficulties"][key];
        auto& levels = all.back().levels;
        if (levels.empty() || difficulty > levels.back().difficulty)
          levels.push_back({step["step"], difficulty});
      }
    }
    ASSERT_EQ(all.size(), 1u);
    const auto clusters = read_clusters(files, all, 256, 0);
    ASSERT_TRUE(clusters) << clusters.error().to_string();
    EXPECT_EQ((*clusters)->never, 0);
    for (const json& step : golden["steps"]) {
      std::set<int64_t> pool;
      for (int64_t i = 0; i < (*clusters)->count(); ++i) {
        if ((*clusters)->first_steps[i] > step["step"]) break;
        pool.insert((*clusters)->rows.begin() + (*clusters)->starts[i],
                    (*clusters)->rows.begin() + (*clusters)->starts[i + 1]);
      }
      for (const json& rank : step["samples_by_rank"])
        for (const json& micro : rank)
          for (const json& row : micro)
            EXPECT_TRUE(pool.contains(row.get<int64_t>())) << row << " in " << step["step"];
      if (std::string(name) == "de_percentile") {
        const int64_t percent = step["difficulties"]["length"];
        EXPECT_EQ(std::ssize(pool), percent == 100 ? 256 : 256 / 100 * percent);
      }
    }
  }
}

}  // namespace
}  // namespace dsj::data

#include "engine/data/batches/clusters.h"

#include <algorithm>
#include <limits>

#include "common/check.h"
#include "engine/data/batches/indexed_lists.h"

namespace dsj::data {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

/// Checks that a metric's file lists each of `rows` rows once.
Status check_rows(const Lists& lists, int64_t rows, const std::string& path) {
  const std::string hint = "`dsj analyze DATA` makes it again from the data of this run";
  if (std::ssize(lists.values) != rows)
    return bad_input("it has " + std::to_string(lists.values.size()) + " rows, the data has " +
                         std::to_string(rows),
                     path, hint);
  std::vector<bool> seen(static_cast<size_t>(rows));
  for (const int64_t row : lists.values) {
    if (row < 0 || row >= rows || seen[static_cast<size_t>(row)])
      return bad_input("row " + std::to_string(row) +
                           (row < 0 || row >= rows ? " is not in the data" : " is listed twice"),
                       path, hint);
    seen[static_cast<size_t>(row)] = true;
  }
  return {};
}

/// Returns the value of each list.
Result<std::vector<int64_t>> list_values(Files& files, const std::string& path, int64_t lists) {
  DSJ_TRY(const Lists values, read_lists(files, path));
  if (values.count() != lists || std::ssize(values.values) != lists)
    return bad_input("expected " + std::to_string(lists) + " lists of one value, found " +
                         std::to_string(values.count()) + " with " +
                         std::to_string(values.values.size()) + " values",
                     path, "it belongs to another index_to_sample file");
  return values.values;
}

/// The first step that admits a row of `difficulty`.
int64_t first_step(const std::vector<Level>& levels, int64_t difficulty) {
  const auto found = std::ranges::lower_bound(levels, difficulty, {}, &Level::difficulty);
  return found == levels.end() ? kNever : found->first_step;
}

}  // namespace

Result<std::vector<int64_t>> row_levels(Files& files, const MetricFiles& metric, int64_t rows,
                                        int64_t first_row) {
  DSJ_CHECK(first_row >= 0 && first_row <= rows && metric.max_difficulty >= 1);
  DSJ_TRY(const Lists lists, read_lists(files, metric.index_to_sample));
  DSJ_TRY_STATUS(check_rows(lists, rows, metric.index_to_sample));
  std::vector<int64_t> values;
  if (!metric.percentile) {
    DSJ_TRY(values, list_values(files, metric.index_to_metric, lists.count()));
  }
  const int64_t trained = rows - first_row, part = trained / metric.max_difficulty;
  std::vector<int64_t> levels(static_cast<size_t>(trained));
  int64_t place = 0;
  for (int64_t i = 0; i < lists.count(); ++i)
    for (const int64_t row : lists.list(i)) {
      if (row < first_row) continue;
      int64_t& level = levels[static_cast<size_t>(row - first_row)];
      if (!metric.percentile)
        level = values[static_cast<size_t>(i)];
      else
        level =
            part == 0 ? metric.max_difficulty : std::min(place / part + 1, metric.max_difficulty);
      ++place;
    }
  return levels;
}

Result<Clusters> make_clusters(std::span<const MetricLevels> metrics) {
  DSJ_CHECK(!metrics.empty());
  const int64_t rows = std::ssize(metrics.front().of_row);
  std::vector<std::pair<int64_t, int64_t>> admitted;  // (step, row)
  Clusters clusters;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t step = 0;
    for (const MetricLevels& metric : metrics) {
      DSJ_CHECK(std::ssize(metric.of_row) == rows);
      step = std::max(step, first_step(metric.levels, metric.of_row[static_cast<size_t>(row)]));
    }
    if (step == kNever)
      ++clusters.never;
    else
      admitted.emplace_back(step, row);
  }
  std::ranges::sort(admitted);
  if (admitted.empty() || admitted.front().first != 0)
    return bad_input("the first difficulty of the curriculum admits no row", {},
                     "raise min_difficulty; DeepSpeed fails here, too");
  for (const auto& [step, row] : admitted) {
    if (clusters.first_steps.empty() || clusters.first_steps.back() != step) {
      if (!clusters.first_steps.empty()) clusters.starts.push_back(std::ssize(clusters.rows));
      clusters.first_steps.push_back(step);
    }
    clusters.rows.push_back(row);
  }
  clusters.starts.push_back(std::ssize(clusters.rows));
  return clusters;
}

Result<std::shared_ptr<const Clusters>> read_clusters(Files& files,
                                                      std::span<const MetricFiles> metrics,
                                                      int64_t rows, int64_t first_row) {
  std::vector<MetricLevels> levels;
  for (const MetricFiles& metric : metrics) {
    DSJ_TRY(auto of_row, row_levels(files, metric, rows, first_row));
    levels.push_back({std::move(of_row), metric.levels});
  }
  DSJ_TRY(Clusters made, make_clusters(levels));
  return std::make_shared<const Clusters>(std::move(made));
}

}  // namespace dsj::data

// Which rows a curriculum by metrics admits, and when: DeepSpeed's rule. Read once, before a run;
// cluster_order.h deals them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

/// From this step on, counted from 0, rows up to `difficulty` are admitted.
struct Level {
  int64_t first_step = 0, difficulty = 0;
};

/// A metric as the configuration names it.
struct MetricFiles {
  std::string name;
  bool percentile = false;      ///< difficulty_type; false: value
  std::string index_to_sample;  ///< lists of rows, the list of the smallest value first
  std::string index_to_metric;  ///< the value of each of these lists; only for values
  int64_t max_difficulty = 100;
  std::vector<Level> levels;  ///< both numbers rise; the first is of step 0
};

/// The files and levels of a dsconfig::MetricCurriculum, which this room does not name, in a run of
/// `steps`.
template <typename Curriculum>
MetricFiles metric_files(const Curriculum& metric, int64_t steps) {
  MetricFiles files{.name = metric.metric,
                    .percentile = metric.percentile,
                    .index_to_sample = metric.index_to_sample,
                    .index_to_metric = metric.index_to_metric,
                    .max_difficulty = metric.schedule.max};
  for (const auto& [first_step, difficulty] : metric.admitted(steps))
    files.levels.push_back({first_step, difficulty});
  return files;
}

/// The difficulty from which each row is admitted. Value: the metric of the row. Percentile: of n
/// rows in the order of the metric, ties by number, place i has i / (n / max_difficulty) + 1, and
/// max_difficulty takes the rest. `rows`: of the data file; those before `first_row` are not trained
/// on, and the result begins behind them. BadInput: the files are damaged, or of other data.
Result<std::vector<int64_t>> row_levels(Files& files, const MetricFiles& metric, int64_t rows,
                                        int64_t first_row);

/// Rows that are admitted together, at the same step.
struct Clusters {
  std::vector<int64_t> rows;          ///< of all clusters, one behind the other, each rising
  std::vector<int64_t> starts = {0};  ///< [count + 1]: where each cluster begins in `rows`
  std::vector<int64_t> first_steps;   ///< [count]: rising; the first is 0
  int64_t never = 0;                  ///< rows that no step admits
  int64_t count() const { return static_cast<int64_t>(first_steps.size()); }
};

struct MetricLevels {
  std::vector<int64_t> of_row;  ///< as row_levels() says
  std::vector<Level> levels;
};

/// A row is admitted at the first step at which every metric admits it, and stays. `metrics`: at
/// least one, of equally many rows. BadInput: no row is admitted at step 0; DeepSpeed fails, too.
Result<Clusters> make_clusters(std::span<const MetricLevels> metrics);

/// Both, for a run.
Result<std::shared_ptr<const Clusters>> read_clusters(Files& files,
                                                      std::span<const MetricFiles> metrics,
                                                      int64_t rows, int64_t first_row);

}  // namespace dsj::data

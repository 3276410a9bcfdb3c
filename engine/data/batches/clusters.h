// Which rows a curriculum by metrics admits at which step, by DeepSpeed's rule. Read once
// before a run; cluster_order.h deals the rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

/// From first_step on, counted from 0, rows up to `difficulty` are admitted.
struct Level {
  int64_t first_step = 0, difficulty = 0;
};

/// A metric as the configuration names it.
struct MetricFiles {
  std::string name;
  bool percentile = false;      ///< difficulty_type is percentile, else value
  std::string index_to_sample;  ///< lists of rows, in ascending order of their value
  std::string index_to_metric;  ///< the value of each list; not for percentiles
  int64_t max_difficulty = 100;
  std::vector<Level> levels;  ///< both members ascend; the first has step 0
};

/// The files and levels of a dsconfig::MetricCurriculum, which this room may not include, for a
/// run of `steps`.
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

/// The difficulty from which each row is admitted. Value: the row's metric. Percentile: of n
/// rows in order of the metric, ties by number, position i has i / (n / max_difficulty) + 1,
/// and max_difficulty takes the rest. `rows`: number of rows in the data file; the result
/// begins at `first_row`, because rows before it are not trained on. Errors: BadInput if the
/// files are damaged or belong to other data.
Result<std::vector<int64_t>> row_levels(Files& files, const MetricFiles& metric, int64_t rows,
                                        int64_t first_row);

/// Rows that are admitted at the same step form a cluster.
struct Clusters {
  std::vector<int64_t> rows;          ///< of all clusters in turn; ascending in each
  std::vector<int64_t> starts = {0};  ///< [count + 1]: where each cluster begins in `rows`
  std::vector<int64_t> first_steps;   ///< [count]: ascending; the first is 0
  int64_t never = 0;                  ///< number of rows that no step admits
  int64_t count() const { return static_cast<int64_t>(first_steps.size()); }
};

struct MetricLevels {
  std::vector<int64_t> of_row;  ///< from row_levels()
  std::vector<Level> levels;
};

/// A row is admitted from the first step on at which every metric admits it. `metrics`: at least
/// one, for the same rows. Errors: BadInput if no row is admitted at step 0; DeepSpeed fails, too.
Result<Clusters> make_clusters(std::span<const MetricLevels> metrics);

/// row_levels() and make_clusters(), for a run.
Result<std::shared_ptr<const Clusters>> read_clusters(Files& files,
                                                      std::span<const MetricFiles> metrics,
                                                      int64_t rows, int64_t first_row);

}  // namespace dsj::data

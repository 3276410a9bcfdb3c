// Curricula that choose rows by a metric of theirs: data_sampling.curriculum_learning's metrics of
// several clusters. They are read where the rows are (engine/train/metric_rows.h); ResolvedConfig has
// those that cut rows. docs/data.md says what the keys mean.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "job/dsconfig/data_efficiency_config.h"

namespace dsj::dsconfig {

struct MetricCurriculum {
  /// From this step on, counted from 0, difficulties up to this are admitted.
  struct Level {
    int64_t first_step = 0, difficulty = 0;
  };

  std::string metric;           ///< its name, in metrics.jsonl too
  bool percentile = false;      ///< a share of the rows in the metric's order; false: its value
  std::string index_to_sample;  ///< files of DeepSpeed's data analyzer, without ".idx" and ".bin"
  std::string index_to_metric;  ///< empty with percentile
  DifficultySchedule schedule;

  /// Where the highest difficulty so far grows in steps 1 to `steps`; the first is step 0. Both
  /// numbers rise: a row that was admitted stays, whatever follows in a list.
  std::vector<Level> admitted(int64_t steps) const;
};

/// Those of a ds_config, in the order of their names; a row needs all of them. None: all rows are
/// taken. Of a ds_config that resolve() does not refuse.
std::vector<MetricCurriculum> metric_curricula(const nlohmann::json& ds_config);

/// What the step `step`, counted from 1, goes by: metric → difficulty.
std::map<std::string, int64_t> difficulties(const std::vector<MetricCurriculum>& metrics,
                                            int64_t step);

/// For the plan, and for what a checkpoint says of its run.
nlohmann::json to_json(const std::vector<MetricCurriculum>& metrics);

}  // namespace dsj::dsconfig

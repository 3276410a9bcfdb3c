// Curricula that choose rows by a metric: the metrics of data_sampling.curriculum_learning with
// several clusters. They are read where the rows are read (engine/train/inputs/metric_rows.h); curricula
// that cut rows are in ResolvedConfig. docs/data.md defines the keys.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "job/dsconfig/config/data_efficiency_config.h"

namespace dsj::dsconfig {

struct MetricCurriculum {
  /// From `first_step` on, counted from 0, rows up to `difficulty` are admitted.
  struct Level {
    int64_t first_step = 0, difficulty = 0;
  };

  std::string metric;           ///< its name, also in metrics.jsonl
  bool percentile = false;      ///< difficulty is a percentile of the rows; false: a value
  std::string index_to_sample;  ///< files of DeepSpeed's data analyzer, without ".idx" and ".bin"
  std::string index_to_metric;  ///< empty if percentile
  DifficultySchedule schedule;

  /// The steps among 1 to `steps` at which the highest difficulty so far grows; the first is step
  /// 0. Both numbers rise: an admitted row stays admitted.
  std::vector<Level> admitted(int64_t steps) const;
};

/// The curricula of a ds_config, ordered by name. A row must be admitted by each; without any, all
/// rows are taken. resolve() must not refuse the ds_config.
std::vector<MetricCurriculum> metric_curricula(const nlohmann::json& ds_config);

/// The values at step `step`, from 1: metric → difficulty.
std::map<std::string, int64_t> difficulties(const std::vector<MetricCurriculum>& metrics,
                                            int64_t step);

/// For the plan and for the run's description in a checkpoint.
nlohmann::json to_json(const std::vector<MetricCurriculum>& metrics);

}  // namespace dsj::dsconfig

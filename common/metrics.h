// One line of metrics.jsonl: the fixed names scripts depend on. Strict JSON: a value that is not
// finite is null.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

namespace dsj {

struct StepMetrics {
  int64_t step = 0;      ///< 1-based: the step this line is about
  double loss = 0;       ///< mean over micro-steps and ranks, before the update
  double lr = 0;         ///< what this step's update used
  double grad_norm = 0;  ///< global L2, unscaled, before clipping
  double loss_scale = 1;
  bool skipped = false;  ///< an overflow: no update
  int64_t tokens = 0;    ///< tokens of this step, all ranks, padding not counted
  double tokens_per_second = 0;
  double step_seconds = 0;
  int64_t wire_bytes = 0;      ///< sent by rank 0 in this step, control traffic excluded
  int64_t host_rss_bytes = 0;  ///< rank 0's peak resident set so far
};

nlohmann::json to_json(const StepMetrics& metrics);

}  // namespace dsj

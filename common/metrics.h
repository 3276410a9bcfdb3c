// One line of metrics.jsonl. Scripts depend on the names. Strict JSON: a value that is not finite
// is written as null.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

namespace dsj {

struct StepMetrics {
  int64_t step = 0;      ///< the step of this line, from 1
  double loss = 0;       ///< mean over micro-steps and ranks, before the update
  double lr = 0;         ///< of this step's update
  double grad_norm = 0;  ///< L2 over all ranks, unscaled, before clipping
  double loss_scale = 1;
  bool skipped = false;  ///< overflow: no update
  int64_t tokens = 0;    ///< tokens of this step, all ranks, padding not counted
  double tokens_per_second = 0;
  double step_seconds = 0;
  int64_t wire_bytes = 0;      ///< sent by rank 0 in this step, without control traffic
  int64_t host_rss_bytes = 0;  ///< rank 0's peak resident set so far
};

nlohmann::json to_json(const StepMetrics& metrics);

}  // namespace dsj

// The best evaluation of a run, and early stopping: Hugging Face's rules
// (Trainer._determine_best_metric, EarlyStoppingCallback of transformers 5). Pure; every rank
// computes the same from the same loss.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "job/dsconfig/config/resolved.h"

namespace dsj::train {

/// The state of it. A checkpoint contains it, so that a later attempt continues to count.
struct Best {
  std::optional<double> loss;         ///< the best eval_loss so far
  int64_t step = 0;                   ///< the step of that evaluation
  std::optional<int64_t> checkpoint;  ///< the step of the best evaluation that has a checkpoint
  int64_t evaluations = 0;            ///< number so far
  int64_t failures = 0;               ///< evaluations in a row without an improvement
  bool stopped = false;               ///< early stopping has ended the run
};

/// Counts the evaluation after `step` steps. Returns whether it is the best so far. NaN is never
/// the best.
bool count_evaluation(const dsconfig::BestConfig& config, int64_t step, double loss, Best& best);
/// Call it before the checkpoint of `step` is saved.
void count_save(int64_t step, Best& best);

nlohmann::json to_json(const Best& best);
/// Null or absent parts mean a fresh start. Without early stopping, `stopped` is ignored.
Best best_from_json(const nlohmann::json& saved, const dsconfig::BestConfig& config);

}  // namespace dsj::train

// The best evaluation of a run, and early stopping: Hugging Face's rules (Trainer._determine_best_metric,
// EarlyStoppingCallback of transformers 5). Pure; every rank computes the same from the same loss.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "job/dsconfig/resolved.h"

namespace dsj::train {

/// Where a run stands with it. A checkpoint carries it, so a later attempt goes on counting.
struct Best {
  std::optional<double> loss;         ///< the best eval_loss so far
  int64_t step = 0;                   ///< of that evaluation
  std::optional<int64_t> checkpoint;  ///< the step of the best evaluation that has a checkpoint
  int64_t evaluations = 0;            ///< counted so far
  int64_t failures = 0;               ///< evaluations in a row without an improvement
  bool stopped = false;               ///< early stopping has ended the run
};

/// Counts the evaluation after `step` steps. True: it is the best so far. A loss that is not a number
/// never is.
bool count_evaluation(const dsconfig::BestConfig& config, int64_t step, double loss, Best& best);
/// A checkpoint of `step` is about to be saved.
void count_save(int64_t step, Best& best);

nlohmann::json to_json(const Best& best);
/// Null or absent parts: as at the start. A run without early stopping goes on where one had stopped.
Best best_from_json(const nlohmann::json& saved, const dsconfig::BestConfig& config);

}  // namespace dsj::train

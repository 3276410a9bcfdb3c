// The curves of a run, read from its output directory: metrics.jsonl, and what status.yaml tells
// about its configuration. Pure but for the file port.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::cli {

using Points = std::vector<std::pair<double, double>>;  ///< (step, value), rising, finite

struct Curve {
  std::string name;  ///< as in metrics.jsonl
  Points points;
};

struct RunCurves {
  std::string name;  ///< of the output directory
  std::vector<Curve>
      curves;             ///< loss, eval_loss, lr, grad_norm, tokens_per_second: those with points
  int64_t steps = 0;      ///< the last one
  nlohmann::json status;  ///< status.yaml; null: there is none
};

/// BadInput: there is no metrics.jsonl. A last line that is being written is left out; a step that
/// two attempts did counts once, as the later one did it.
Result<RunCurves> read_curves(Files& files, const std::string& directory);

/// At most about `most` points: of each stretch its smallest and its largest, so that spikes stay.
Points thinned(const Points& points, size_t most);

}  // namespace dsj::cli

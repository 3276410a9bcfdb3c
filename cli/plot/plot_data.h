// The curves of a run, read from its output directory: metrics.jsonl, and its configuration from
// status.yaml. Pure but for the file port.
#pragma once

#include <cstdint>
#include <map>
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
  std::vector<double> not_finite = {};  ///< the steps whose value is nan or infinite, rising
};

/// Splits the values of steps into points and those that are not finite.
Curve curve_of(const std::string& name, const std::map<double, double>& values);
/// "not finite in 3 steps, first 5"; empty: all are finite.
std::string about_not_finite(const Curve& curve);

struct RunCurves {
  std::string name;  ///< as run_names() says
  /// loss, eval_loss, lr, grad_norm, tokens_per_second, then "difficulty.METRIC"
  std::vector<Curve> curves;
  int64_t steps = 0;      ///< the last step
  nlohmann::json status;  ///< status.yaml; null: there is none
};

/// BadInput: there is no metrics.jsonl. A last line that is still being written is left out. If two
/// attempts did a step, the later one counts.
Result<RunCurves> read_curves(Files& files, const std::string& directory);

/// A name for each run: the shortest end of its directory's path that no other one has.
std::vector<std::string> run_names(const std::vector<std::string>& directories);

/// Null: the run has no such curve.
const Curve* find_curve(const RunCurves& run, const std::string& name);

/// The names of all curves, in the order above.
std::vector<std::string> curve_names(const std::vector<RunCurves>& runs);

/// {"name", "steps", "phase", "curves": {NAME: {"points": [[step, value], ...], "notFinite": [steps]}}},
/// every step, for -o json. A phase is absent if no status tells it.
nlohmann::json to_json(const RunCurves& run);

/// Thins to about `most` points: the smallest and the largest of each stretch, so that spikes stay.
Points thinned(const Points& points, size_t most);

}  // namespace dsj::cli

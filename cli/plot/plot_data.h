// Reads the curves of a run from its output directory: metrics.jsonl, and the configuration
// from status.yaml. Pure except for the file port.
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

using Points = std::vector<std::pair<double, double>>;  ///< (step, value), ascending, finite

struct Curve {
  std::string name;  ///< as in metrics.jsonl
  Points points;
  std::vector<double> not_finite = {};  ///< the steps with a nan or infinite value, ascending
};

/// Splits values (step → value) into points and not finite steps.
Curve curve_of(const std::string& name, const std::map<double, double>& values);
/// "not finite in 3 steps, first 5"; empty if all are finite.
std::string about_not_finite(const Curve& curve);

struct RunCurves {
  std::string name;  ///< from run_names()
  /// loss, eval_loss, lr, grad_norm, tokens_per_second, then "difficulty.METRIC"
  std::vector<Curve> curves;
  int64_t steps = 0;      ///< the last step
  nlohmann::json status;  ///< status.yaml; null if there is none
};

/// Errors: BadInput without a metrics.jsonl. A last line that is still being written is left
/// out. If two attempts did the same step, the later one counts.
Result<RunCurves> read_curves(Files& files, const std::string& directory);

/// A name for each run: the shortest unique end of its directory's path.
std::vector<std::string> run_names(const std::vector<std::string>& directories);

/// Returns null if the run has no such curve.
const Curve* find_curve(const RunCurves& run, const std::string& name);

/// The names of all curves, in the order above.
std::vector<std::string> curve_names(const std::vector<RunCurves>& runs);

/// {"name", "steps", "phase", "curves": {NAME: {"points": [[step, value], ...], "notFinite":
/// [steps]}}}, with every step, for -o json. The phase is omitted without a status.
nlohmann::json to_json(const RunCurves& run);

/// Thins to about `most` points, keeping the minimum and maximum of each section, so spikes stay.
Points thinned(const Points& points, size_t most);

}  // namespace dsj::cli

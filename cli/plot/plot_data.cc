#include "cli/plot/plot_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "cli/run/run_status.h"
#include "common/json.h"
#include "job/contract.h"
#include "job/report/field_value.h"

namespace dsj::cli {
namespace {

using nlohmann::json;

constexpr const char* kCurves[] = {
    report::name_of<&report::Step::loss>(), report::name_of<&report::Eval::loss>(),
    report::name_of<&report::Step::lr>(), report::name_of<&report::Step::grad_norm>(),
    report::name_of<&report::Step::tokens_per_second>()};

using Values = std::map<std::string, std::map<double, double>>;  ///< curve → step → value

/// Takes difficulties as "difficulty.METRIC".
void take_difficulties(const json& line, double step, Values& values) {
  constexpr const char* kName = report::name_of<&report::Step::difficulty>();
  const auto found = line.find(kName);
  if (found == line.end() || !found->is_object()) return;
  for (const auto& [metric, value] : found->items())
    if (value.is_number()) values[std::string(kName) + "." + metric][step] = value.get<double>();
}

/// Takes metrics of an objective, which are in no table: rewards/chosen, eval_rewards/chosen.
void take_metrics(const json& line, double step, Values& values) {
  for (const auto& [name, value] : line.items())
    if (name.find('/') != std::string::npos && value.is_number())
      values[name][step] = value.get<double>();
}

/// The last `count` names of a directory's absolute path.
std::string end_of(const std::string& directory, int count) {
  std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  std::filesystem::path end = path.filename();
  for (path = path.parent_path(); --count > 0 && path.has_filename(); path = path.parent_path())
    end = path.filename() / end;
  return end.string();
}

}  // namespace

Curve curve_of(const std::string& name, const std::map<double, double>& values) {
  Curve curve{.name = name};
  for (const auto& [step, value] : values) {
    if (std::isfinite(value))
      curve.points.emplace_back(step, value);
    else
      curve.not_finite.push_back(step);
  }
  return curve;
}

std::string about_not_finite(const Curve& curve) {
  if (curve.not_finite.empty()) return {};
  const size_t steps = curve.not_finite.size();
  const std::string first = std::to_string(static_cast<int64_t>(curve.not_finite.front()));
  return steps == 1 ? "not finite in step " + first
                    : "not finite in " + std::to_string(steps) + " steps, the first " + first;
}

std::vector<std::string> run_names(const std::vector<std::string>& directories) {
  std::vector<std::string> names;
  for (const std::string& directory : directories) {
    const auto taken = [&](int count) {
      return std::ranges::count_if(directories, [&](const std::string& other) {
        return end_of(other, count) == end_of(directory, count);
      });
    };
    int count = 1;
    while (taken(count) > 1 && end_of(directory, count) != end_of(directory, count + 1)) ++count;
    names.push_back(end_of(directory, count));
  }
  return names;
}

Result<RunCurves> read_curves(Files& files, const std::string& directory) {
  const std::string path = path_join(directory, contract::kMetricsFile);
  DSJ_TRY(const bool there, files.exists(path));
  if (!there) {
    return bad_input("there is no such file", path, "name the output directory of a dsj run");
  }
  DSJ_TRY(const std::string text, files.read_all(path, int64_t{4} << 30));
  RunCurves run{.name = run_names({directory}).front()};
  Values values;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const json line = report::parse_line(text.substr(begin, end - begin));
    if (!line.is_object()) continue;
    const auto step = line.find("step");
    if (step == line.end() || !step->is_number_integer()) continue;
    run.steps = std::max(run.steps, step->get<int64_t>());
    for (const char* name : kCurves) {
      const auto value = line.find(name);
      double number = 0;
      if (value != line.end() && report::value_from_json(*value, number))
        values[name][*step] = number;
    }
    take_difficulties(line, *step, values);
    take_metrics(line, *step, values);
  }
  for (const char* name : kCurves) {
    if (const auto found = values.extract(name))
      run.curves.push_back(curve_of(name, found.mapped()));
  }
  for (const auto& [name, points] : values) run.curves.push_back(curve_of(name, points));
  const std::string status = path_join(directory, contract::kStatusFile);
  if (const auto found = files.read_all(status)) run.status = status_from_text(*found, status);
  return run;
}

const Curve* find_curve(const RunCurves& run, const std::string& name) {
  const auto found = std::ranges::find(run.curves, name, &Curve::name);
  return found == run.curves.end() ? nullptr : &*found;
}

std::vector<std::string> curve_names(const std::vector<RunCurves>& runs) {
  std::vector<std::string> names(std::begin(kCurves), std::end(kCurves));
  for (const RunCurves& run : runs)
    for (const Curve& curve : run.curves)
      if (!std::ranges::count(names, curve.name)) names.push_back(curve.name);
  return names;
}

nlohmann::json to_json(const RunCurves& run) {
  nlohmann::json curves = nlohmann::json::object();
  for (const Curve& curve : run.curves)
    curves[curve.name] = {{"points", curve.points}, {"notFinite", curve.not_finite}};
  nlohmann::json all = {{"name", run.name}, {"steps", run.steps}, {"curves", curves}};
  if (const std::string phase = json_text(run.status, "phase"); !phase.empty())
    all["phase"] = phase;
  return all;
}

Points thinned(const Points& points, size_t most) {
  if (points.size() <= most || most < 4) return points;
  const size_t stretches = most / 2;
  Points kept;
  for (size_t i = 0; i < stretches; ++i) {
    const auto first = points.begin() + static_cast<std::ptrdiff_t>(i * points.size() / stretches);
    const auto end =
        points.begin() + static_cast<std::ptrdiff_t>((i + 1) * points.size() / stretches);
    const auto by_value = [](const auto& a, const auto& b) { return a.second < b.second; };
    auto [low, high] = std::minmax_element(first, end, by_value);
    if (low > high) std::swap(low, high);
    kept.push_back(*low);
    if (high != low) kept.push_back(*high);
  }
  return kept;
}

}  // namespace dsj::cli

#include "cli/plot/plot_page.h"

#include <algorithm>

#include "cli/plot/plot_page_parts.h"
#include "cli/plot/plot_picture.h"
#include "job/report/field_value.h"

namespace dsj::cli {
namespace {

using nlohmann::json;

constexpr size_t kPagePointsMost = 4000;

/// The unit of a curve; "" if it has none.
std::string unit_of(const std::string& curve) {
  if (curve == report::name_of<&report::Step::loss>() ||
      curve == report::name_of<&report::Eval::loss>())
    return "nats per target token";
  if (curve == report::name_of<&report::Step::tokens_per_second>()) return "tokens/s, all ranks";
  return "";
}

template <auto kMember>
std::string training_at() {
  return std::string("/") + report::kTraining + "/" + report::status_name<kMember>();
}

/// What ran, as far as status.yaml says.
std::string summary(const RunCurves& run) {
  std::string rows;
  const auto add = [&](const char* name, const std::string& pointer) {
    const std::string value = status_at(run, pointer);
    if (value.empty()) return;
    rows += std::string("<tr><th scope=\"row\">") + name + "</th><td>" + markup_text(value) +
            "</td></tr>";
  };
  const std::string config = training_at<&report::Resolved::config>() + "/";
  add("phase", "/phase");
  add("ranks", "/worldSize");
  add("steps", training_at<&report::Resolved::total_steps>());
  add("precision", config + "precision");
  add("ZeRO stage", config + "zero_optimization/stage");
  add("rows per step", config + "train_batch_size");
  add("micro-batch", config + "train_micro_batch_size_per_gpu");
  add("accumulation", config + "gradient_accumulation_steps");
  add("optimizer", config + "optimizer/type");
  add("learning rate", config + "optimizer/lr");
  add("schedule", config + "scheduler/type");
  add("last loss", training_at<&report::Step::loss>());
  return rows.empty() ? ""
                      : "<details><summary>what ran</summary><table>" + rows + "</table></details>";
}

/// A run's checkbox with its colour and name, and what ran.
std::string legend(const RunCurves& run, size_t number) {
  return "<div><label><input type=\"checkbox\" checked data-run=\"" + std::to_string(number) +
         "\"><span class=\"key\" style=\"background:" + run_colour(number) + "\"></span>" +
         markup_text(run.name) + ", " + std::to_string(run.steps) + " steps</label>" +
         summary(run) + "</div>\n";
}

constexpr char kControls[] = R"(<div class="controls">
<label><input type="checkbox" id="log"> logarithmic</label>
<label>smoothing <input type="range" id="smoothing" min="0" max="0.99" step="0.01" value="0"> <output id="weight">0.00</output></label>
<button type="button" id="whole">whole run</button>
<span>Drag over a chart to zoom; arrow keys move along it.</span></div>
<noscript>The charts need JavaScript. `dsj plot OUT --svg FILE` writes a picture.</noscript>
)";

/// The frame of a chart, which the script fills. Adds its values to `charts`.
std::string chart(const std::vector<RunCurves>& runs, const std::string& name, json& charts) {
  json series = json::array();
  std::string bad;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Curve* curve = find_curve(runs[i], name);
    if (!curve) continue;
    json xs = json::array(), ys = json::array();
    for (const auto& [step, value] : thinned(curve->points, kPagePointsMost)) {
      xs.push_back(static_cast<int64_t>(step));
      ys.push_back(value);
    }
    series.push_back({{"run", i}, {"x", xs}, {"y", ys}, {"bad", curve->not_finite}});
    const std::string about = about_not_finite(*curve);
    if (!about.empty()) bad += "<p>" + markup_text(runs[i].name + ": " + about) + "</p>";
  }
  if (series.empty()) return {};
  const std::string unit = unit_of(name);
  charts[name] = {{"unit", unit}, {"runs", series}};
  return "<h2>" + markup_text(name) + (unit.empty() ? "" : " <small>" + unit + "</small>") +
         "</h2>" + bad + "<figure style=\"margin:0\" data-chart=\"" + markup_text(name) +
         "\"><svg role=\"img\" tabindex=\"0\"></svg><div class=\"value\" "
         "aria-live=\"polite\"></div>"
         "</figure>\n";
}

/// Escapes JSON for a script element, so that a name cannot end it or begin a comment.
std::string in_script(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  for (size_t at; (at = text.find('<')) != std::string::npos;) text.replace(at, 1, "\\u003c");
  return text;
}

}  // namespace

std::string plot_page(const std::vector<RunCurves>& runs, int again) {
  std::string title;
  json names = json::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    title += (title.empty() ? "" : ", ") + runs[i].name;
    names.push_back({{"name", runs[i].name}, {"colour", run_colour(i)}});
  }
  std::string page =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>" +
      markup_text(title) + "</title><style>\n" + kPlotPageStyle + "</style></head><body>\n<h1>" +
      markup_text(title) + "</h1>\n";
  for (size_t i = 0; i < runs.size(); ++i) page += legend(runs[i], i);
  page += kControls;
  json charts = json::object();
  for (const std::string& name : curve_names(runs)) page += chart(runs, name, charts);
  const std::string reload =
      again > 0 ? "setTimeout(() => location.reload(), " + std::to_string(again) + "000);\n" : "";
  return page + "<script>\nconst runs = " + in_script(names) + ", charts = " + in_script(charts) +
         ";\n" + kPlotPageScript + reload + "</script></body></html>\n";
}

}  // namespace dsj::cli

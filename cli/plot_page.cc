#include "cli/plot_page.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/plot_text.h"
#include "common/format.h"
#include "job/report/told.h"

namespace dsj::cli {
namespace {

using nlohmann::json;

constexpr double kWidth = 860, kHeight = 240, kLeft = 70, kRight = 10, kTop = 10, kBottom = 26;
constexpr size_t kPointsMost = 2000;
constexpr std::array kColours{"#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2"};

constexpr char kStyle[] = R"(
body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:900px;color:#1f2937}
h1{font-size:1.4em} h2{font-size:1.05em;margin:1.4em 0 .2em}
svg{width:100%;height:auto;background:#fafafa;border:1px solid #e5e7eb}
text{font:11px system-ui,sans-serif;fill:#6b7280}
table{border-collapse:collapse} td,th{padding:.15em .8em .15em 0;text-align:left;font-weight:normal}
th{color:#6b7280} .value{min-height:1.5em;color:#374151} .key{display:inline-block;width:1em;height:.3em;
margin:0 .4em .2em 1em})";

constexpr char kScript[] = R"(
for (const svg of document.querySelectorAll('svg')) {
  const chart = charts[svg.dataset.chart], line = svg.querySelector('.hair');
  const out = svg.nextElementSibling;
  svg.addEventListener('mousemove', event => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * chart.width;
    const step = chart.x0 + (x - chart.left) / chart.span * (chart.x1 - chart.x0);
    let best = null;
    const words = chart.runs.map(run => {
      let low = 0, high = run.x.length - 1;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (run.x[middle] < step) low = middle + 1; else high = middle;
      }
      if (low > 0 && step - run.x[low - 1] < run.x[low] - step) low--;
      if (best === null || Math.abs(run.x[low] - step) < Math.abs(best - step)) best = run.x[low];
      return run.name + ': step ' + run.x[low] + ', ' + run.y[low];
    });
    const at = chart.x1 > chart.x0 ? chart.left + (best - chart.x0) / (chart.x1 - chart.x0) * chart.span
                                   : chart.left + chart.span / 2;
    line.setAttribute('x1', at); line.setAttribute('x2', at); line.style.display = '';
    out.textContent = words.join('   ');
  });
  svg.addEventListener('mouseleave', () => { line.style.display = 'none'; out.textContent = ''; });
})";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string number(double value) {
  return text::format("%.2f", value);
}

const char* colour(size_t run) {
  return kColours[run % kColours.size()];
}

struct Range {
  double low = INFINITY, high = -INFINITY;
  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  /// Of `value` between 0 and 1; the middle when there is but one.
  double place(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

const Curve* find_curve(const RunCurves& run, const std::string& name) {
  const auto found = std::ranges::find(run.curves, name, &Curve::name);
  return found == run.curves.end() ? nullptr : &*found;
}

bool any_has(const std::vector<RunCurves>& runs, const std::string& name) {
  return std::ranges::any_of(
      runs, [&](const RunCurves& run) { return find_curve(run, name) != nullptr; });
}

/// About kPointsMost of them.
std::vector<double> thinned_steps(const std::vector<double>& steps) {
  std::vector<double> kept;
  const size_t stride = steps.size() / kPointsMost + 1;
  for (size_t i = 0; i < steps.size(); i += stride) kept.push_back(steps[i]);
  return kept;
}

/// Axes and lines of a curve, and into `data` what the page's script needs for them.
std::string shapes(const std::vector<RunCurves>& runs, const std::string& name, json& data) {
  const double span = kWidth - kLeft - kRight, tall = kHeight - kTop - kBottom;
  Range x, y;
  for (const RunCurves& run : runs) {
    if (const Curve* curve = find_curve(run, name)) {
      for (const auto& [step, value] : curve->points) x.take(step), y.take(value);
      for (const double step : curve->not_finite) x.take(step);
    }
  }
  if (y.high < y.low) y.take(0);  // no value is finite
  const auto at_y = [&](double value) { return kTop + (1 - y.place(value)) * tall; };
  std::string svg;
  for (const double part : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    const double value = y.high > y.low ? y.low + part * (y.high - y.low) : y.low;
    const double at = kTop + (1 - part) * tall;
    svg += "<line x1=\"" + number(kLeft) + "\" x2=\"" + number(kWidth - kRight) + "\" y1=\"" +
           number(at) + "\" y2=\"" + number(at) + "\" stroke=\"#e5e7eb\"/><text x=\"" +
           number(kLeft - 6) + "\" y=\"" + number(at + 4) + "\" text-anchor=\"end\">" +
           short_number(value) + "</text>";
    if (y.high <= y.low) break;
  }
  svg += "<text x=\"" + number(kLeft) + "\" y=\"" + number(kHeight - 8) + "\">" +
         std::to_string(static_cast<int64_t>(x.low)) + "</text><text x=\"" +
         number(kWidth - kRight) + "\" y=\"" + number(kHeight - 8) +
         "\" text-anchor=\"end\">step " + std::to_string(static_cast<int64_t>(x.high)) + "</text>";
  json series = json::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    const Curve* curve = find_curve(runs[i], name);
    if (!curve) continue;
    std::string path;
    json xs = json::array(), ys = json::array();
    for (const auto& [step, value] : thinned(curve->points, kPointsMost)) {
      const std::string point = number(kLeft + x.place(step) * span) + "," + number(at_y(value));
      path += (path.empty() ? "" : " ") + point;
      xs.push_back(static_cast<int64_t>(step));
      ys.push_back(value);
    }
    svg += "<polyline fill=\"none\" stroke=\"" + std::string(colour(i)) +
           "\" stroke-width=\"1.5\" points=\"" + path + "\"/>";
    for (const double step : thinned_steps(curve->not_finite)) {
      const std::string at = number(kLeft + x.place(step) * span);
      svg += "<line x1=\"" + at + "\" x2=\"" + at + "\" y1=\"" + number(kHeight - kBottom) +
             "\" y2=\"" + number(kHeight - kBottom + 6) + "\" stroke=\"#dc2626\"><title>step " +
             std::to_string(static_cast<int64_t>(step)) + " is not finite</title></line>";
    }
    if (xs.size() == 1) {
      svg += "<circle r=\"3\" fill=\"" + std::string(colour(i)) + "\" cx=\"" +
             path.substr(0, path.find(',')) + "\" cy=\"" + path.substr(path.find(',') + 1) + "\"/>";
    }
    series.push_back({{"name", runs[i].name}, {"x", xs}, {"y", ys}});
  }
  data[name] = {{"width", kWidth}, {"left", kLeft}, {"span", span},
                {"x0", x.low},     {"x1", x.high},  {"runs", series}};
  return svg;
}

/// A curve on the page: its shapes, and the line that follows the mouse.
std::string drawing(const std::vector<RunCurves>& runs, const std::string& name, json& data) {
  return "<svg data-chart=\"" + escaped(name) + "\" viewBox=\"0 0 " + number(kWidth) + " " +
         number(kHeight) + "\">" + shapes(runs, name, data) +
         "<line class=\"hair\" style=\"display:none\" y1=\"" + number(kTop) + "\" y2=\"" +
         number(kHeight - kBottom) + "\" stroke=\"#9ca3af\"/></svg><div class=\"value\"></div>\n";
}

/// What status.yaml tells at a JSON pointer; empty: nothing.
std::string told(const RunCurves& run, const std::string& pointer) {
  const json::json_pointer at(pointer);
  if (!run.status.is_object() || !run.status.contains(at) || run.status[at].is_null()) return {};
  const json& value = run.status[at];
  return value.is_string() ? value.get<std::string>() : value.dump();
}

template <auto kMember>
std::string training_at() {
  return std::string("/") + report::kTraining + "/" + report::status_name<kMember>();
}

/// "2 ranks, ZeRO stage 2, bf16, AdamW": as much of it as status.yaml tells.
std::string in_short(const RunCurves& run) {
  const std::string config = training_at<&report::Resolved::config>() + "/";
  std::string text;
  const auto add = [&](const char* before, const std::string& pointer, const char* after) {
    const std::string value = told(run, pointer);
    if (!value.empty()) text += (text.empty() ? "" : ", ") + (before + value) + after;
  };
  add("", "/worldSize", " ranks");
  add("ZeRO stage ", config + "zero_optimization/stage", "");
  add("", config + "precision", "");
  add("", config + "optimizer/type", "");
  return text;
}

/// A few words about what ran, where status.yaml tells them.
std::string summary(const RunCurves& run) {
  std::string rows;
  const auto add = [&](const char* name, const std::string& pointer) {
    const std::string value = told(run, pointer);
    if (value.empty()) return;
    rows += std::string("<tr><th>") + name + "</th><td>" + escaped(value) + "</td></tr>";
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
  return rows;
}

}  // namespace

std::string plot_page(const std::vector<RunCurves>& runs, int again) {
  std::string title;
  for (const RunCurves& run : runs) title += (title.empty() ? "" : ", ") + run.name;
  std::string page = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" +
                     escaped(title) + "</title><style>" + kStyle + "</style></head><body>\n<h1>" +
                     escaped(title) + "</h1>\n";
  for (size_t i = 0; i < runs.size(); ++i) {
    page += "<h2><span class=\"key\" style=\"background:" + std::string(colour(i)) + "\"></span>" +
            escaped(runs[i].name) + ", " + std::to_string(runs[i].steps) + " steps</h2><table>" +
            summary(runs[i]) + "</table>\n";
  }
  json data = json::object();
  for (const std::string& name : curve_names(runs)) {
    if (!any_has(runs, name)) continue;
    page += "<h2>" + escaped(name) + "</h2>";
    for (const RunCurves& run : runs) {
      const Curve* curve = find_curve(run, name);
      const std::string bad = curve ? about_not_finite(*curve) : "";
      if (!bad.empty()) page += "<p>" + escaped(run.name + ": " + bad) + "</p>";
    }
    page += drawing(runs, name, data);
  }
  std::string text = data.dump(-1, ' ', false, json::error_handler_t::replace);
  // A name must not end the script, nor begin a comment in it.
  for (size_t at; (at = text.find('<')) != std::string::npos;) text.replace(at, 1, "\\u003c");
  const std::string reload =
      again > 0 ? "\nsetTimeout(() => location.reload(), " + std::to_string(again) + "000);" : "";
  return page + "<script>\nconst charts = " + text + ";" + kScript + reload +
         "\n</script></body></html>\n";
}

Result<std::string> plot_svg(const std::vector<RunCurves>& runs, const std::string& curve) {
  if (!any_has(runs, curve)) return bad_input("no run has a curve \"" + curve + "\"", "--svg");
  std::string heading =
      "<tspan fill=\"#1f2937\" font-weight=\"bold\">" + escaped(curve) + "</tspan>";
  if (runs.size() == 1) {
    const std::string what = in_short(runs[0]);
    heading +=
        "<tspan dx=\"12\">" + (what.empty() ? escaped(runs[0].name) : escaped(what)) + "</tspan>";
  }
  for (size_t i = 0; runs.size() > 1 && i < runs.size(); ++i) {
    heading += "<tspan dx=\"12\" fill=\"" + std::string(colour(i)) + "\">" + escaped(runs[i].name) +
               "</tspan>";
  }
  constexpr double kHeading = 26;  // above the drawing
  json data = json::object();
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 " + number(-kHeading) + " " +
         number(kWidth) + " " + number(kHeight + kHeading) +
         "\" font-family=\"system-ui,sans-serif\" font-size=\"12\" fill=\"#6b7280\">\n<rect y=\"" +
         number(-kHeading) + "\" width=\"100%\" height=\"100%\" fill=\"#fafafa\"/>\n<text x=\"" +
         number(kLeft) + "\" y=\"-8\">" + heading + "</text>\n" + shapes(runs, curve, data) +
         "\n</svg>\n";
}

}  // namespace dsj::cli

#include "cli/plot/plot_picture.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/plot/plot_text.h"
#include "common/format.h"
#include "job/report/field_value.h"

namespace dsj::cli {
namespace {

using nlohmann::json;

constexpr double kWidth = 860, kHeight = 240, kLeft = 70, kRight = 10, kTop = 10, kBottom = 26;
constexpr double kHeading = 26;  // above the drawing
constexpr size_t kPicturePointsMost = 2000;
constexpr std::array kColours{"#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2"};

std::string number(double value) {
  return text::format("%.2f", value);
}

struct Range {
  double low = INFINITY, high = -INFINITY;
  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  /// The position of `value` between 0 and 1; the middle if the range is empty.
  double place(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

std::string words_at(double x, double y, const char* anchor, const std::string& text) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\">" +
         text + "</text>";
}

/// Thins to about kPicturePointsMost steps.
std::vector<double> thinned_steps(const std::vector<double>& steps) {
  std::vector<double> kept;
  const size_t stride = steps.size() / kPicturePointsMost + 1;
  for (size_t i = 0; i < steps.size(); i += stride) kept.push_back(steps[i]);
  return kept;
}

/// Axes and lines of a curve.
std::string shapes(const std::vector<RunCurves>& runs, const std::string& name) {
  const double span = kWidth - kLeft - kRight, tall = kHeight - kTop - kBottom;
  Range x, y;
  for (const RunCurves& run : runs) {
    if (const Curve* curve = find_curve(run, name)) {
      for (const auto& [step, value] : curve->points) x.take(step), y.take(value);
      for (const double step : curve->not_finite) x.take(step);
    }
  }
  if (y.high < y.low) y.take(0);  // no value is finite
  const auto at_x = [&](double step) { return kLeft + x.place(step) * span; };
  const auto at_y = [&](double value) { return kTop + (1 - y.place(value)) * tall; };
  std::string svg;
  for (const double tick : round_ticks(y.low, y.high, 5)) {
    const std::string at = number(at_y(tick));
    svg += "<line x1=\"" + number(kLeft) + "\" x2=\"" + number(kWidth - kRight) + "\" y1=\"" + at +
           "\" y2=\"" + at + "\" stroke=\"#e5e7eb\"/>" +
           words_at(kLeft - 6, at_y(tick) + 4, "end", tick_text(tick));
  }
  for (const double tick : round_ticks(x.low, x.high, 7))
    if (tick == std::floor(tick))
      svg += words_at(at_x(tick), kHeight - 8, "middle", tick_text(tick));
  for (size_t i = 0; i < runs.size(); ++i) {
    const Curve* curve = find_curve(runs[i], name);
    if (!curve) continue;
    const std::string colour = run_colour(i);
    const Points points = thinned(curve->points, kPicturePointsMost);
    std::string path;
    for (const auto& [step, value] : points)
      path += (path.empty() ? "" : " ") + number(at_x(step)) + "," + number(at_y(value));
    svg += "<polyline fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"1.5\" points=\"" +
           path + "\"/>";
    for (const double step : thinned_steps(curve->not_finite)) {
      svg += "<line x1=\"" + number(at_x(step)) + "\" x2=\"" + number(at_x(step)) + "\" y1=\"" +
             number(kHeight - kBottom) + "\" y2=\"" + number(kHeight - kBottom + 6) +
             "\" stroke=\"#dc2626\"><title>step " + std::to_string(static_cast<int64_t>(step)) +
             " is not finite</title></line>";
    }
    if (points.size() == 1) {
      svg += "<circle r=\"3\" fill=\"" + colour + "\" cx=\"" + number(at_x(points[0].first)) +
             "\" cy=\"" + number(at_y(points[0].second)) + "\"/>";
    }
  }
  return svg;
}

/// "2 ranks, ZeRO stage 2, bf16, AdamW": as far as status.yaml says.
std::string in_short(const RunCurves& run) {
  const std::string config = std::string("/") + report::kTraining + "/" +
                             report::status_name<&report::Resolved::config>() + "/";
  std::string text;
  const auto add = [&](const char* before, const std::string& pointer, const char* after) {
    const std::string value = status_at(run, pointer);
    if (!value.empty()) text += (text.empty() ? "" : ", ") + (before + value) + after;
  };
  add("", "/worldSize", " ranks");
  add("ZeRO stage ", config + "zero_optimization/stage", "");
  add("", config + "precision", "");
  add("", config + "optimizer/type", "");
  return text;
}

}  // namespace

const char* run_colour(size_t run) {
  return kColours[run % kColours.size()];
}

std::string markup_text(const std::string& text) {
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

std::string status_at(const RunCurves& run, const std::string& pointer) {
  const json::json_pointer at(pointer);
  if (!run.status.is_object() || !run.status.contains(at) || run.status[at].is_null()) return {};
  const json& value = run.status[at];
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::vector<double> round_ticks(double low, double high, int count) {
  // Closer doubles have no round numbers between them.
  if (!(high - low > 1e-9 * std::max(std::abs(low), std::abs(high)))) return {low};
  const double raw = (high - low) / count, power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double times : {5.0, 2.0, 1.0})
    if (times * power >= raw * 0.999) step = times * power;
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i)
    ticks.push_back(i * step);
  return ticks;
}

Result<std::string> plot_svg(const std::vector<RunCurves>& runs, const std::string& curve) {
  if (!std::ranges::any_of(runs, [&](const auto& run) { return find_curve(run, curve); }))
    return bad_input("no run has a curve \"" + curve + "\"", "--svg");
  std::string heading =
      "<tspan fill=\"#1f2937\" font-weight=\"bold\">" + markup_text(curve) + "</tspan>";
  if (runs.size() == 1) {
    const std::string what = in_short(runs[0]);
    heading += "<tspan dx=\"12\">" + markup_text(what.empty() ? runs[0].name : what) + "</tspan>";
  }
  for (size_t i = 0; runs.size() > 1 && i < runs.size(); ++i) {
    heading += "<tspan dx=\"12\" fill=\"" + std::string(run_colour(i)) + "\">" +
               markup_text(runs[i].name) + "</tspan>";
  }
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 " + number(-kHeading) + " " +
         number(kWidth) + " " + number(kHeight + kHeading) +
         "\" font-family=\"system-ui,sans-serif\" font-size=\"12\" fill=\"#6b7280\">\n<rect y=\"" +
         number(-kHeading) + "\" width=\"100%\" height=\"100%\" fill=\"#fafafa\"/>\n<text x=\"" +
         number(kLeft) + "\" y=\"-8\">" + heading + "</text>\n" + shapes(runs, curve) +
         "\n</svg>\n";
}

}  // namespace dsj::cli

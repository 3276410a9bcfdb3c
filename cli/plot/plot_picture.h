// A curve as a picture: an SVG file that needs nothing else.
#pragma once

#include <string>
#include <vector>

#include "cli/plot/plot_data.h"

namespace dsj::cli {

/// The colour of a run in pictures and pages: its place among the runs decides.
const char* run_colour(size_t run);
/// As text of SVG and HTML.
std::string markup_text(const std::string& text);
/// What status.yaml says at a JSON pointer; empty: nothing.
std::string status_at(const RunCurves& run, const std::string& pointer);

/// About `count` values between `low` and `high`, each 1, 2 or 5 times a power of ten apart; `low` alone if there is
/// nothing between.
std::vector<double> round_ticks(double low, double high, int count);

/// `curve` of all runs, with a heading: for one run what ran, for several a key. BadInput: no run has
/// such a curve.
Result<std::string> plot_svg(const std::vector<RunCurves>& runs, const std::string& curve);

}  // namespace dsj::cli

// Draws a curve as a self-contained SVG file.
#pragma once

#include <string>
#include <vector>

#include "cli/plot/plot_data.h"

namespace dsj::cli {

/// The colour of a run in pictures and pages, by its index among the runs.
const char* run_colour(size_t run);
/// Escapes text for SVG and HTML.
std::string markup_text(const std::string& text);
/// The value in status.yaml at a JSON pointer; empty if there is none.
std::string status_at(const RunCurves& run, const std::string& pointer);

/// About `count` values between `low` and `high`, spaced by 1, 2 or 5 times a power of ten;
/// only `low` if there is none between them.
std::vector<double> round_ticks(double low, double high, int count);

/// Draws `curve` of all runs, with a heading: what ran for one run, a legend for several.
/// Errors: BadInput if no run has this curve.
Result<std::string> plot_svg(const std::vector<RunCurves>& runs, const std::string& curve);

}  // namespace dsj::cli

// Curves as one HTML page that needs nothing else: drawings as SVG in the text, values under the
// mouse by a script in the text, no network. One of its drawings is also to be had as a picture.
#pragma once

#include <string>
#include <vector>

#include "cli/plot_data.h"

namespace dsj::cli {

/// One drawing per curve name, all runs in it; a table of what ran. With `again` above 0 a browser loads the page anew
/// after so many seconds: somebody writes it again.
std::string plot_page(const std::vector<RunCurves>& runs, int again = 0);

/// The page's drawing of `curve` as an SVG file of its own, all runs in it, with a heading: for one
/// run what ran, for several a key. BadInput: no run has such a curve.
Result<std::string> plot_svg(const std::vector<RunCurves>& runs, const std::string& curve);

}  // namespace dsj::cli

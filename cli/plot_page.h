// Curves as one HTML page that needs nothing else: drawings as SVG in the text, values under the
// mouse by a script in the text, no network.
#pragma once

#include <string>
#include <vector>

#include "cli/plot_data.h"

namespace dsj::cli {

/// One drawing per curve name, all runs in it; a table of what ran.
std::string plot_page(const std::vector<RunCurves>& runs);

}  // namespace dsj::cli

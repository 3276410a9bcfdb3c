// Curves as one HTML page that needs nothing else: values as JSON and a script that draws them, no network.
#pragma once

#include <string>
#include <vector>

#include "cli/plot/plot_data.h"

namespace dsj::cli {

/// One chart per curve name, all runs in it; a table of what ran. The page zooms, smooths, hides runs, and shows a
/// logarithmic scale. With `again` above 0 a browser loads the page anew after so many seconds: somebody
/// writes it again.
std::string plot_page(const std::vector<RunCurves>& runs, int again = 0);

}  // namespace dsj::cli

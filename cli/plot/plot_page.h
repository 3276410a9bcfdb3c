// Writes curves as a self-contained HTML page: values as JSON and a script that draws them.
#pragma once

#include <string>
#include <vector>

#include "cli/plot/plot_data.h"

namespace dsj::cli {

/// One chart per curve name with all runs, and a table of what ran. The page zooms, smooths,
/// hides runs, and has a logarithmic scale. If `again` is above 0, the browser reloads the page
/// every `again` seconds, because it is being rewritten.
std::string plot_page(const std::vector<RunCurves>& runs, int again = 0);

}  // namespace dsj::cli

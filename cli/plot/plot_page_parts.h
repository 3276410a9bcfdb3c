// The texts of cli/plot/plot_page.css and cli/plot/plot_page.js, for the page of `dsj plot`.
// Tested by: tests/run/page_check.py
#pragma once

namespace dsj::cli {

extern const char kPlotPageStyle[];
extern const char kPlotPageScript[];

}  // namespace dsj::cli

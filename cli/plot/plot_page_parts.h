// The style and the script of the page of `dsj plot`: cli/plot/plot_page.css and cli/plot/plot_page.js, as texts.
// Tested by: tests/run/page_check.py
#pragma once

namespace dsj::cli {

extern const char kPlotPageStyle[];
extern const char kPlotPageScript[];

}  // namespace dsj::cli

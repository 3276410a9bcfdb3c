// Draws curves as text: Braille dots (two columns and four rows per character), or stars.
#pragma once

#include <string>
#include <vector>

#include "cli/plot/plot_data.h"

namespace dsj::cli {

struct TextChart {
  int columns = 80;  ///< the terminal's; at least 24 are used
  int rows = 8;      ///< rows of characters for the dots; 0 means only the heading
  bool ascii = false;
};

/// A heading (name, last value, smallest and largest value with their steps); the dots, with
/// the top and bottom values at the left; below them the first and last step. Adjacent points
/// are joined.
std::string chart_text(const Curve& curve, const TextChart& chart);

/// All curves, each followed by an empty line. `lines`: limit on the height, 0 for none. If it
/// is too small, the first curve gets at least 4 rows, and the others only headings.
std::string charts_text(const std::vector<Curve>& curves, TextChart chart, int lines);

struct Terminal {
  int columns = 80, lines = 0;  ///< of standard output; 0 lines if it is not a terminal
  bool ascii = false;           ///< TERM names a terminal without Unicode
};
Terminal terminal();

/// "1.93e-05", "312", "1.9312": six characters if possible.
std::string short_number(double value);
/// "0.5", "200", "1e-05": a round number without trailing zeros.
std::string tick_text(double value);

}  // namespace dsj::cli

// Curves as text: Braille dots (two columns and four rows per character), or stars.
#pragma once

#include <string>
#include <vector>

#include "cli/plot/plot_data.h"

namespace dsj::cli {

struct TextChart {
  int columns = 80;  ///< the terminal's; at least 24 are used
  int rows = 8;      ///< rows of characters for the dots; 0: the heading alone
  bool ascii = false;
};

/// A heading (name, last value, smallest and largest value with their steps); the dots, with the
/// top and bottom values at the left; the first and last step below. Neighbouring points are
/// joined.
std::string chart_text(const Curve& curve, const TextChart& chart);

/// All curves, each followed by an empty line. `lines`: what they may take; where that is too little, the
/// first curve is drawn, with 4 rows at least, and of the others comes the heading. 0: no limit.
std::string charts_text(const std::vector<Curve>& curves, TextChart chart, int lines);

struct Terminal {
  int columns = 80, lines = 0;  ///< of standard output; 0 lines: it is not a terminal
  bool ascii = false;           ///< TERM says that it shows no more
};
Terminal terminal();

/// "1.93e-05", "312", "1.9312": in six characters where possible.
std::string short_number(double value);
/// "0.5", "200", "1e-05": of a round number, without zeros at its end.
std::string tick_text(double value);

}  // namespace dsj::cli

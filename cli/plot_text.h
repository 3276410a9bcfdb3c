// Curves as text: Braille dots (two columns and four rows per character), or stars.
#pragma once

#include <string>

#include "cli/plot_data.h"

namespace dsj::cli {

struct TextChart {
  int columns = 80;  ///< the terminal's; at least 24 are used
  int rows = 8;      ///< rows of characters for the dots
  bool ascii = false;
};

/// A heading (name, last value, smallest and largest value with their steps); the dots, with the
/// top and bottom values at the left; the first and last step below. Neighbouring points are
/// joined.
std::string chart_text(const Curve& curve, const TextChart& chart);

/// The columns of standard output; 80 if it is not a terminal.
int terminal_columns();

/// "1.93e-05", "312", "1.9312": in six characters where possible.
std::string short_number(double value);

}  // namespace dsj::cli

// Curves as text: Braille dots (two columns and four rows a character), or stars.
#pragma once

#include <string>

#include "cli/plot_data.h"

namespace dsj::cli {

struct TextChart {
  int columns = 80;  ///< of the terminal; at least 24 are used
  int rows = 8;      ///< of dots' characters
  bool ascii = false;
};

/// A heading (name, last value, smallest and largest with their steps), the dots with the values of
/// the top and the bottom beside them, the first and the last step below. Points that are
/// neighbours are joined.
std::string chart_text(const Curve& curve, const TextChart& chart);

/// Of standard output; 80 when it is no terminal.
int terminal_columns();

/// "1.93e-05", "312", "1.9312": six characters where it can be.
std::string short_number(double value);

}  // namespace dsj::cli

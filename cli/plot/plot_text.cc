#include "cli/plot/plot_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "common/format.h"
#include "common/terminal.h"

namespace dsj::cli {
namespace {

constexpr int kLabel = 10;  // columns for the values at the left

/// A grid of dots; a character has four rows and two columns.
class Dots {
 public:
  Dots(int columns, int rows) : columns_(columns), rows_(rows), cells_(columns * rows) {}

  int width() const { return columns_ * 2; }
  int height() const { return rows_ * 4; }

  void set(int x, int y) {
    constexpr unsigned char kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (x < 0 || y < 0 || x >= width() || y >= height()) return;
    cells_[static_cast<size_t>(y / 4 * columns_ + x / 2)] |= kBits[y % 4][x % 2];
  }
  void line(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) {
      set(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps);
    }
  }
  std::string row(int number, bool ascii) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      const unsigned char bits = cells_[static_cast<size_t>(number * columns_ + column)];
      if (bits == 0) {
        text += ' ';
      } else if (ascii) {
        text += '*';
      } else {  // U+2800 + bits in UTF-8
        text += '\xe2';
        text += static_cast<char>(0xa0 | bits >> 6);
        text += static_cast<char>(0x80 | (bits & 0x3f));
      }
    }
    while (text.ends_with(' ')) text.pop_back();
    return text;
  }

 private:
  int columns_, rows_;
  std::vector<unsigned char> cells_;
};

std::string padded(const std::string& text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

std::string step_text(double step) {
  return std::to_string(static_cast<int64_t>(step));
}

}  // namespace

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size != 0 && (size < 1e-3 || size >= 1e6)) return text::format("%.2e", value);
  return text::format(size >= 100 ? "%.0f" : "%.4f", value);
}

std::string tick_text(double value) {
  const double size = std::abs(value);
  return text::format(size != 0 && (size < 1e-3 || size >= 1e6) ? "%.3g" : "%.5g", value);
}

std::string chart_text(const Curve& curve, const TextChart& chart) {
  const Points& points = curve.points;
  const std::string bad = about_not_finite(curve);
  if (points.empty()) return bad.empty() ? "" : curve.name + "  " + bad + "\n";
  const auto by_value = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [low, high] = std::minmax_element(points.begin(), points.end(), by_value);
  std::string text = curve.name + "  last " + short_number(points.back().second) + ", min " +
                     short_number(low->second) + " at " + step_text(low->first) + ", max " +
                     short_number(high->second) + " at " + step_text(high->first) +
                     (bad.empty() ? "" : "; " + bad) + "\n";

  if (chart.rows == 0) return text;
  Dots dots(std::max(24, chart.columns) - kLabel - 2, std::max(1, chart.rows));
  const double x0 = points.front().first, x1 = points.back().first;
  const double bottom = low->second, top = high->second;
  const auto place = [](double value, double from, double to, int size) {
    if (to <= from) return size / 2;
    return static_cast<int>(std::lround((value - from) / (to - from) * (size - 1)));
  };
  int last_x = -1, last_y = 0;
  for (const auto& [step, value] : points) {
    const int x = place(step, x0, x1, dots.width());
    const int y = dots.height() - 1 - place(value, bottom, top, dots.height());
    if (last_x >= 0) {
      dots.line(last_x, last_y, x, y);
    } else {
      dots.set(x, y);
    }
    last_x = x, last_y = y;
  }
  const int rows = dots.height() / 4;
  for (int row = 0; row < rows; ++row) {
    std::string label;
    if (row == 0) label = short_number(top);
    if (row == rows - 1) label = short_number(bottom);
    text += padded(label, kLabel) + (chart.ascii ? " |" : " ┤") + dots.row(row, chart.ascii) + "\n";
  }
  const std::string first = step_text(x0), last = step_text(x1);
  const size_t room = static_cast<size_t>(dots.width() / 2);
  text +=
      std::string(kLabel + 2, ' ') + first +
      (x1 > x0 ? padded(last, std::max(room, first.size() + last.size() + 1) - first.size()) : "") +
      "\n";
  return text;
}

std::string charts_text(const std::vector<Curve>& curves, TextChart chart, int lines) {
  constexpr int kFrame = 3, kRowsLeast = 4;  // heading, steps and an empty line around the dots
  const int count = static_cast<int>(curves.size());
  const bool all = lines <= 0 || count * (chart.rows + kFrame) <= lines;
  std::string text;
  if (all) {
    for (const Curve& curve : curves) text += chart_text(curve, chart) + "\n";
    return text;
  }
  chart.rows = std::clamp(lines - kFrame - count, kRowsLeast, std::max(kRowsLeast, chart.rows));
  for (const Curve& curve : curves) {
    text += chart_text(curve, chart);
    chart.rows = 0;
  }
  return text + "\n";
}

Terminal terminal() {
  Terminal found{.ascii = is_dumb_terminal()};
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    found.columns = size.ws_col;
    found.lines = size.ws_row > 0 ? size.ws_row : 24;
  }
  return found;
}

}  // namespace dsj::cli

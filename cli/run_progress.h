// What `dsj run` shows: one bar redrawn in place on a terminal, a line per "log" report (every
// logging_steps) otherwise. No packaged C++ progress library is in both Debian 12 and Ubuntu 24.04,
// hence this one.
#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace dsj::cli {

struct ProgressView {
  std::string label;  ///< before the first step: "starting", "saving"
  int64_t step = 0;
  std::optional<int64_t> total;
  std::optional<double> loss, lr, grad_norm, tokens_per_second, seconds_left;
};

/// "   42/2000   2% [##........] loss 1.9312 lr 9.8e-07 312 tok/s, 1:10:05 left", at most `columns`
/// wide: the bar shrinks first, then the text is cut.
std::string bar_text(const ProgressView& view, int columns);
/// "step 42/2000 loss 1.9312 lr 9.8e-07 grad_norm 0.92 312 tok/s, 1:10:05 left"
std::string line_text(const ProgressView& view);
/// "0:07", "12:03", "1:10:05", "3 d 04:05".
std::string duration_text(double seconds);

/// Draws on a stream. One thread.
class Progress {
 public:
  Progress(std::FILE* out, bool terminal);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;

  /// A line of these numbers where there is no bar.
  void line(const ProgressView& view);
  /// The next redraw() shows it.
  void show(const ProgressView& view) { view_ = view; }
  /// Draws the bar again; call some times a second. Nothing where there is no terminal.
  void redraw();
  /// A line of text above the bar.
  void print(std::FILE* stream, const std::string& text);
  void clear();

 private:
  std::FILE* out_;
  bool terminal_, drawn_ = false;
  std::optional<ProgressView> view_;
};

}  // namespace dsj::cli

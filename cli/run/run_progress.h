// Shows the progress of `dsj run`: on a terminal a bar that is redrawn in place, with a line above
// it per "log" report (every logging_steps) if the job sets that number; elsewhere only these
// lines. Own code, because no C++ progress library is packaged in both Debian 12 and Ubuntu 24.04.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

#include "job/report/step_line.h"

namespace dsj::cli {

struct ProgressView {
  std::string label;  ///< shown before the first step: "starting", "saving"
  report::StepLine line;
  std::optional<double> seconds_left;
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
  /// `lines`: print them above the bar, too.
  Progress(std::FILE* out, bool terminal, bool lines = false);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;

  /// Prints a line with these numbers if there is no bar, or if `lines` was set.
  void line(const ProgressView& view);
  /// Sets what the next redraw() shows.
  void show(const ProgressView& view) { view_ = view; }
  /// Redraws the bar; call it a few times per second. Does nothing without a terminal.
  void redraw();
  /// Prints a line of text above the bar.
  void print(std::FILE* stream, const std::string& text);
  void clear();
  /// Whether a stream is a pipe whose reader has gone (`dsj run | head`).
  bool reader_gone() const { return reader_gone_; }

 private:
  void flush(std::FILE* stream);
  std::FILE* out_;
  bool terminal_, lines_, drawn_ = false, reader_gone_ = false;
  std::optional<ProgressView> view_;
};

}  // namespace dsj::cli

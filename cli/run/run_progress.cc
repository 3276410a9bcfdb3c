#include "cli/run/run_progress.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "common/format.h"

namespace dsj::cli {
namespace {

using text::format;

std::string numbers_text(const ProgressView& view) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : " ") + part; };
  const report::StepLine& line = view.line;
  if (line.loss) add("loss " + report::shown_number("%.4f", *line.loss));
  if (line.lr) add("lr " + report::shown_number("%.3g", *line.lr));
  if (line.tokens_per_second) add(format("%.0f", *line.tokens_per_second) + " tok/s");
  if (view.seconds_left) text += ", " + duration_text(*view.seconds_left) + " left";
  return text;
}

std::string count_text(const report::StepLine& line) {
  return std::to_string(line.step) + (line.total ? "/" + std::to_string(*line.total) : "");
}

}  // namespace

std::string duration_text(double seconds) {
  const int64_t all =
      std::isfinite(seconds) ? static_cast<int64_t>(std::max(0.0, seconds) + 0.5) : 0;
  const int64_t days = all / 86400, hours = all / 3600 % 24, minutes = all / 60 % 60;
  if (days > 0) return format("%ld d %02ld:%02ld", days, hours, minutes);
  if (hours > 0) return format("%ld:%02ld:%02ld", hours, minutes, all % 60);
  return format("%ld:%02ld", minutes, all % 60);
}

std::string bar_text(const ProgressView& view, int columns) {
  const report::StepLine& line = view.line;
  std::string head = line.step > 0 ? count_text(line) : view.label;
  std::string bar, tail = line.step > 0 ? " " + numbers_text(view) : "";
  if (!view.label.empty() && line.step > 0) tail += " (" + view.label + ")";
  if (line.total && *line.total > 0 && line.step > 0) {
    const double part = std::clamp(double(line.step) / double(*line.total), 0.0, 1.0);
    head += format(" %3d%%", static_cast<int>(part * 100));
    const int room = std::min(40, columns - static_cast<int>(head.size() + tail.size()) - 3);
    if (room >= 5) {
      const int full = static_cast<int>(part * room);
      bar = " [" + std::string(full, '#') + std::string(room - full, '.') + "]";
    }
  }
  return (head + bar + tail).substr(0, static_cast<size_t>(std::max(1, columns)));
}

std::string line_text(const ProgressView& view) {
  const std::string left =
      view.seconds_left ? ", " + duration_text(*view.seconds_left) + " left" : "";
  return step_line(view.line) + left;
}

Progress::Progress(std::FILE* out, bool terminal, bool lines)
    : out_(out), terminal_(terminal), lines_(lines) {}

void Progress::line(const ProgressView& view) {
  if (!terminal_ || lines_) print(out_, line_text(view));
}

void Progress::flush(std::FILE* stream) {
  if (std::fflush(stream) != 0 && errno == EPIPE) reader_gone_ = true;
}

void Progress::redraw() {
  if (!terminal_ || !view_) return;
  winsize size{};
  const bool known = ioctl(fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  std::fprintf(out_, "\r%s\x1b[K", bar_text(*view_, (known ? size.ws_col : 80) - 1).c_str());
  std::fflush(out_);
  drawn_ = true;
}

void Progress::print(std::FILE* stream, const std::string& text) {
  clear();
  std::fprintf(stream, "%s\n", text.c_str());
  flush(stream);
  redraw();
}

void Progress::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", out_);
  std::fflush(out_);
  drawn_ = false;
}

}  // namespace dsj::cli

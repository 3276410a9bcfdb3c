#include "job/report/step_line.h"

#include <cmath>
#include <sstream>
#include <utility>

#include "common/format.h"
#include "common/text.h"
#include "job/report/wire.h"

namespace dsj::report {
namespace {

using text::format;

constexpr std::string_view kStart = "step ";
constexpr std::string_view kSkipped = " skipped: the gradient of ", kNotFinite = " is not finite";

}  // namespace

std::string shown_number(const char* form, double value) {
  if (std::isnan(value)) return "nan";  // with either sign
  return format(form, value);
}

std::string step_line(const StepLine& line) {
  std::string text = std::string(kStart) + std::to_string(line.step);
  if (line.total) text += "/" + std::to_string(*line.total);
  if (line.loss) text += " loss " + shown_number("%.4f", *line.loss);
  if (line.lr) text += " lr " + shown_number("%.3g", *line.lr);
  if (line.grad_norm) text += " grad_norm " + shown_number("%.4g", *line.grad_norm);
  if (line.tokens_per_second)
    text += " " + shown_number("%.0f", *line.tokens_per_second) + " tok/s";
  if (line.skipped_for) text += std::string(kSkipped) + *line.skipped_for + std::string(kNotFinite);
  return text;
}

std::optional<StepLine> find_step_line(std::string_view log_line) {
  if (log_line.find("[rank ") != std::string_view::npos) return std::nullopt;
  const size_t start = log_line.rfind(kStart);
  if (start == std::string_view::npos) return std::nullopt;
  std::string_view rest = log_line.substr(start + kStart.size());
  std::optional<std::string> skipped_for;
  if (const size_t at = rest.find(kSkipped); at != std::string_view::npos) {
    std::string_view name = rest.substr(at + kSkipped.size());
    skipped_for = std::string(name.substr(0, name.find(kNotFinite)));
    rest = rest.substr(0, at);
  }
  std::istringstream words{std::string(rest)};
  std::string count, word, value;
  words >> count;
  const size_t slash = count.find('/');
  const auto step = text::parse_int(count.substr(0, slash));
  if (!step || *step < 1) return std::nullopt;
  StepLine line{.step = *step, .skipped_for = std::move(skipped_for)};
  if (slash != std::string::npos) {
    line.total = text::parse_int(count.substr(slash + 1));
    if (!line.total) return std::nullopt;
  }
  while (words >> word && words >> value) {
    const bool speed = value == "tok/s";
    const std::string& shown = speed ? word : value;
    auto number = text::parse_double(shown);
    if (!number) number = number_of_word(shown);
    if (!number) return std::nullopt;
    if (speed) {
      line.tokens_per_second = number;
    } else if (word == "loss") {
      line.loss = number;
    } else if (word == "lr") {
      line.lr = number;
    } else if (word == "grad_norm") {
      line.grad_norm = number;
    } else {
      return std::nullopt;
    }
  }
  const bool empty = !line.loss && !line.lr && !line.grad_norm && !line.tokens_per_second;
  return empty ? std::nullopt : std::optional(line);
}

std::optional<StepLine> LoggedSteps::take(const Report& report) {
  if (const auto* resolved = std::get_if<Resolved>(&report)) {
    if (resolved->total_steps) line_.total = resolved->total_steps;
  } else if (const auto* step = std::get_if<Step>(&report)) {
    line_.tokens_per_second = step->tokens_per_second;
    line_.skipped_for = step->skipped.value_or(false)
                            ? std::optional(step->bad_gradient.value_or("a parameter"))
                            : std::nullopt;
  } else if (const auto* logged = std::get_if<Log>(&report)) {
    line_.step = logged->step;
    line_.loss = logged->loss;
    line_.lr = logged->lr;
    line_.grad_norm = logged->grad_norm;
    return line_;
  }
  return std::nullopt;
}

}  // namespace dsj::report

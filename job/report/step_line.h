// The text line of a logged step: on a terminal without a progress bar, and in the log of worker
// 0's pod, where `dsj plot JOB` reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "job/report/reports.h"

namespace dsj::report {

struct StepLine {
  int64_t step = 0;
  std::optional<int64_t> total;
  std::optional<double> loss, lr, grad_norm, tokens_per_second;
  /// If the step was skipped: the parameter whose gradient is not finite. nullopt if not skipped.
  std::optional<std::string> skipped_for = {};
};

/// `value` formatted with printf's `form`; "nan", "inf" or "-inf" if it is not finite.
std::string shown_number(const char* form, double value);
/// "step 42/2000 loss 1.9312 lr 9.8e-07 grad_norm 0.92 312 tok/s"; after a skipped step with "
/// skipped: the gradient of NAME is not finite". Unknown values are left out.
std::string step_line(const StepLine& line);
/// The step in a log line that ends with such a text. nullopt if it does not, or if a rank printed
/// the line ("[rank 3] ...").
std::optional<StepLine> find_step_line(std::string_view log_line);

/// Makes the lines of logged steps. A log report has the mean loss since the last one; speed and
/// total come from earlier reports.
class LoggedSteps {
 public:
  /// nullopt if the report is not a log of a step.
  std::optional<StepLine> take(const Report& report);

 private:
  StepLine line_;
};

}  // namespace dsj::report

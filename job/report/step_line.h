// The line about a logged step, for people: on a terminal without a progress bar, and in the log of
// worker 0's pod, where `dsj plot JOB` reads it.
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
  /// The step was skipped: the parameter whose gradient is not finite. nullopt: it was not.
  std::optional<std::string> skipped_for = {};
};

/// A number as printf's `form` shows it; one that is not finite is "nan", "inf" or "-inf".
std::string shown_number(const char* form, double value);
/// "step 42/2000 loss 1.9312 lr 9.8e-07 grad_norm 0.92 312 tok/s", and of a skipped step " skipped:
/// the gradient of NAME is not finite". Unknown values are left out.
std::string step_line(const StepLine& line);
/// The step in a log line that ends with such a text. nullopt: it has none, or it is a rank's own
/// line ("[rank 3] ...").
std::optional<StepLine> find_step_line(std::string_view log_line);

/// Makes the lines of logged steps. A log has the loss since the last one; speed and total come
/// from the reports before it.
class LoggedSteps {
 public:
  /// nullopt: the report is no logged step.
  std::optional<StepLine> take(const Report& report);

 private:
  StepLine line_;
};

}  // namespace dsj::report

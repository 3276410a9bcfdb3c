// The line that tells people of a logged step: on a terminal without a bar, and in the log of
// worker 0's pod, from where `dsj plot JOB` reads it again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dsj {

struct StepLine {
  int64_t step = 0;
  std::optional<int64_t> total;
  std::optional<double> loss, lr, grad_norm, tokens_per_second;
};

/// "step 42/2000 loss 1.9312 lr 9.8e-07 grad_norm 0.92 312 tok/s"; what is not known is left out.
std::string step_line(const StepLine& line);
/// The step of a log line that ends with such a text; nothing when it has none, or when it is a
/// rank's own line ("[rank 3] ...").
std::optional<StepLine> find_step_line(std::string_view log_line);

}  // namespace dsj

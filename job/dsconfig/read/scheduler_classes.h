// The schedules of DeepSpeed 0.19 and torch.optim.lr_scheduler, with their constructor parameters.
// Internal to dsconfig.
#pragma once

#include <string>
#include <vector>

namespace dsj::dsconfig {

struct SchedulerClass {
  std::string name;                   ///< exact case
  bool deepspeed = false;             ///< false: torch's
  std::vector<std::string> params;    ///< accepted in `scheduler.params`
  std::vector<std::string> required;  ///< the mandatory ones of these
};

/// Null if not built.
const SchedulerClass* scheduler_class(const std::string& type);
/// Why a known schedule is not built; "" if it is built or unknown.
std::string scheduler_refusal(const std::string& type);
/// All names, built or refused.
const std::vector<std::string>& scheduler_names();

}  // namespace dsj::dsconfig

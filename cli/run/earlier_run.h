// The earlier run in an output directory: decides whether a new command is the same run,
// continues it, or is another run that would silently get the old result. Each `dsj run`
// records its inputs by content in OUT/.dsj/inputs.json, once it has saved something.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "job/spec/job.h"

namespace dsj::cli {

/// Everything that the job's result depends on: model and data by content, the relevant
/// settings, the length. Reads the data. Errors: a file cannot be read.
Result<nlohmann::json> inputs_of(Files& files, const jobspec::Job& job);

/// The inputs that the earlier run recorded, or null.
nlohmann::json recorded_inputs(Files& files, const std::string& run_dir);
Status record_inputs(Files& files, const std::string& run_dir, const nlohmann::json& inputs);

/// What is known of the earlier run.
struct EarlierRun {
  nlohmann::json inputs;         ///< recorded_inputs
  bool finished = false;         ///< its status is Complete and it exported a model
  bool has_checkpoints = false;  ///< the new command would continue from them
};

struct Course {
  enum class Kind {
    GoOn,    ///< start, or continue from the checkpoints
    Refuse,  ///< it is another run
  } kind = Kind::GoOn;
  std::vector<std::string> said;  ///< Refuse: the differences; GoOn: what changes from here on
};
/// Pure. Another model means another run. So do other data, unless the run is unfinished and
/// `ignore_data_skip` is set. Other settings mean another run only if the earlier one is
/// finished and no more steps are requested: a run may continue with another learning rate.
Course course_after(const EarlierRun& earlier, const nlohmann::json& now, bool ignore_data_skip);
/// What the user can do about a refusal.
std::string ways_on(const EarlierRun& earlier, const nlohmann::json& now);

}  // namespace dsj::cli

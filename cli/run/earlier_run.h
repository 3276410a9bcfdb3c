// The run that an output directory had before: whether the command at hand is the same run, goes on
// with it, or is another run that would silently get the old one's result. Each `dsj run` records what
// it is made from, by content, in OUT/.dsj/inputs.json, when it has saved something.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "job/spec/job.h"

namespace dsj::cli {

/// What the job's result follows from: model and data with their content, the settings that count,
/// the length. Reads the data. Error: a file cannot be read.
Result<nlohmann::json> inputs_of(Files& files, const jobspec::Job& job);

/// What the earlier run recorded; null: nothing.
nlohmann::json recorded_inputs(Files& files, const std::string& run_dir);
Status record_inputs(Files& files, const std::string& run_dir, const nlohmann::json& inputs);

/// What is known of the earlier run.
struct EarlierRun {
  nlohmann::json inputs;         ///< recorded_inputs
  bool finished = false;         ///< its status is Complete, and there is a model
  bool has_checkpoints = false;  ///< the command at hand would go on from them
};

struct Course {
  enum class Kind {
    GoOn,    ///< begin, or go on from the checkpoints
    Refuse,  ///< it is another run
  } kind = Kind::GoOn;
  std::vector<std::string> said;  ///< Refuse: what differs; GoOn: what goes on otherwise
};
/// Pure. Another model is another run. So are other data, unless the run is not finished and
/// `ignore_data_skip`. Other settings are another run only if the earlier one is finished and no
/// more steps are asked for: a run may go on with another rate.
Course course_after(const EarlierRun& earlier, const nlohmann::json& now, bool ignore_data_skip);

}  // namespace dsj::cli

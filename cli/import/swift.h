// ms-swift's command line: `swift sft|pt|rlhf ...`, a YAML or JSON file behind it, and its scripts swift/cli/*.py
// under another launcher. Its arguments become those of `dsj run` (spec/job.h), with ms-swift's defaults
// where a line is silent. Facts of ms-swift 4.3.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/import/imported.h"
#include "common/files/files.h"
#include "common/result.h"

namespace dsj::jobimport {

/// "sft", "pt" or "rlhf" of ".../swift/cli/sft.py"; nullopt: not a training script of ms-swift.
std::optional<std::string> swift_command(const std::string& script);

struct SwiftArguments {
  std::vector<std::string> line;  ///< arguments of `dsj run`
  nlohmann::json
      ds_config;  ///< what --deepspeed names of ms-swift's own; null: the line has a file
  std::vector<Missing> missing;
  std::vector<std::string> left_open, not_carried;
};

/// `words`: behind the command. `ranks`: of the launch; ms-swift's default of gradient accumulation
/// depends on it. BadInput: an objective, a tuner or a task that is not built; a file that cannot be
/// read.
Result<SwiftArguments> swift_arguments(Files& files, const std::string& command,
                                       const std::vector<std::string>& words, int64_t ranks);

}  // namespace dsj::jobimport

// Imports ms-swift's command lines: `swift sft|pt|rlhf ...`, the YAML or JSON file after it,
// and its scripts swift/cli/*.py under another launcher. Its arguments become those of `dsj
// run` (spec/job.h), with ms-swift's defaults for missing ones. Facts of ms-swift 4.3.
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

/// "sft", "pt" or "rlhf" of ".../swift/cli/sft.py"; nullopt for other scripts.
std::optional<std::string> swift_command(const std::string& script);

struct SwiftArguments {
  std::vector<std::string> line;  ///< arguments of `dsj run`
  nlohmann::json
      ds_config;  ///< what --deepspeed names of ms-swift's own; null: the line has a file
  std::vector<Missing> missing;
  std::vector<std::string> left_open, not_carried;
};

/// `words`: those after the command. `ranks`: of the launch; ms-swift's default of gradient
/// accumulation depends on it. Errors: BadInput for an objective, tuner or task that is not
/// built, or for a file that cannot be read.
Result<SwiftArguments> swift_arguments(Files& files, const std::string& command,
                                       const std::vector<std::string>& words, int64_t ranks);

}  // namespace dsj::jobimport

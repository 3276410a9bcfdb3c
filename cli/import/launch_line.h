// The line that starts a training, taken apart: the launcher's options, the script, the script's arguments.
// Internal to cli/import; callers use launcher.h.
// Tested by: tests/cli/import/launcher_test.cc, tests/cli/import/swift_test.cc, tests/cli/import/trl_test.cc
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::jobimport {

enum class Launcher { Torchrun, DeepSpeed, Accelerate, Trl, Swift };

/// By name, dashes as underscores; true: a value follows.
using LauncherOptions = std::map<std::string, bool>;
const LauncherOptions& launcher_options(Launcher launcher);
/// "--Nproc-per-node=2" → "Nproc_per_node".
std::string option_name(const std::string& word);

struct LaunchLine {
  std::map<std::string, std::string> options;  ///< of the launcher; switches are ""
  std::string script;
  std::vector<std::string> arguments;  ///< of the script
  std::vector<std::string> unknown;    ///< variables in the place of options
};

/// The index of the launcher's word among a command's; -1: the command is another one. For
/// `python -m torch.distributed.run` it is that of the module. It may follow srun, docker run, uv run
/// and the like, with their options.
int find_launcher(const std::vector<std::string>& words, Launcher launcher);

/// `environment`: of the command; NAME=value in front of the launcher's word is added. BadInput: not
/// such a line, an option without its value, no script.
Result<LaunchLine> take_line_apart(const std::vector<std::string>& words, Launcher launcher,
                                   const std::string& origin,
                                   std::map<std::string, std::string> environment);

}  // namespace dsj::jobimport

// Splits a line that starts a training into the launcher's options, the script and its
// arguments. Internal to cli/import; callers use launcher.h.
// Tested by: tests/cli/import/launcher_test.cc, tests/cli/import/swift_test.cc, tests/cli/import/trl_test.cc
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::jobimport {

enum class Launcher { Torchrun, DeepSpeed, Accelerate, Trl, Swift };

/// Option names with underscores for dashes → whether a value follows.
using LauncherOptions = std::map<std::string, bool>;
const LauncherOptions& launcher_options(Launcher launcher);
/// "--Nproc-per-node=2" → "Nproc_per_node".
std::string option_name(const std::string& word);

struct LaunchLine {
  std::map<std::string, std::string> options;  ///< the launcher's; switches have the value ""
  std::string script;
  std::vector<std::string> arguments;  ///< the script's
  std::vector<std::string> unknown;    ///< variables in positions of options
  std::string visible_devices;         ///< CUDA_VISIBLE_DEVICES; empty if it is not set
};

/// The index of the launcher's word in a command; -1 if it is another command. For `python -m
/// torch.distributed.run` it is the module's index. The launcher may follow srun, docker run,
/// uv run and similar commands with their options.
int find_launcher(const std::vector<std::string>& words, Launcher launcher);

/// `environment`: the command's; NAME=value before the launcher's word is added. Errors:
/// BadInput if it is not such a line, if an option lacks its value, or if there is no script.
Result<LaunchLine> take_line_apart(const std::vector<std::string>& words, Launcher launcher,
                                   const std::string& origin,
                                   std::map<std::string, std::string> environment);

}  // namespace dsj::jobimport

// Imports the lines that start a DeepSpeed training: torchrun (also python -m
// torch.distributed.run and torch.distributed.launch), deepspeed, `accelerate launch`, `trl
// sft` and `swift sft`. The launcher's options determine the workers, the script's arguments
// the rest, by the table of `dsj run` (spec/job.h). TRL's scripts determine the objective;
// ms-swift's scripts have their own arguments (swift.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/import/imported.h"
#include "cli/import/launch_line.h"
#include "cli/import/shell.h"
#include "common/files/files.h"
#include "common/result.h"

namespace dsj::jobimport {

/// `words`: one command, which begins with the launcher's word or python -m. `origin`: for
/// messages. `environment`: as Command::environment; NAME=value before the launcher's word is
/// added. Errors: BadInput if it is not such a line, if an option lacks its value, or if a
/// hostfile cannot be read.
Result<Imported> import_line(Files& files, const std::vector<std::string>& words, Launcher launcher,
                             const std::string& origin,
                             std::map<std::string, std::string> environment = {});

/// Imports the first such line of a script, preferring lines outside conditions, loops and
/// functions; other such lines are reported. The script's notes become part of left_open.
Result<Imported> import_script(Files& files, const Script& script, Launcher launcher,
                               const std::string& origin);

/// A job with the hostfile's workers, and placeholders for model, data and ds_config.
Result<Imported> import_hostfile(const std::string& text, const std::string& source);

}  // namespace dsj::jobimport

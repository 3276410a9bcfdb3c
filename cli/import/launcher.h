// The lines that start a DeepSpeed training: torchrun (also python -m torch.distributed.run and
// torch.distributed.launch), deepspeed, `accelerate launch`, `trl sft` and `swift sft`. The launcher's own options give the
// workers, the script's arguments the rest, by the same table as `dsj run`'s (spec/job.h). A script of TRL's names its
// objective; those of ms-swift have arguments of their own (swift.h).
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

/// One command, the launcher's word first or behind a python -m. `origin` is for messages.
/// BadInput: not such a line, an option without its value, a hostfile that cannot be read. `environment`:
/// as Command::environment; NAME=value in front of the launcher's word counts, too.
Result<Imported> import_line(Files& files, const std::vector<std::string>& words, Launcher launcher,
                             const std::string& origin,
                             std::map<std::string, std::string> environment = {});

/// The first such line of a script, before those inside conditions, loops and functions; others are
/// named. The script's notes are among what is left open.
Result<Imported> import_script(Files& files, const Script& script, Launcher launcher,
                               const std::string& origin);

/// A job with the hostfile's workers, and placeholders for model, data and ds_config.
Result<Imported> import_hostfile(const std::string& text, const std::string& source);

}  // namespace dsj::jobimport

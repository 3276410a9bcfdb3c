// Installs the agent for use in another image (launcher: Command): its own file, its loader and the
// libraries that it has loaded, in one directory; libtorch is not among them. Started by
// installed_agent_command() (worker_job.h), it needs nothing from that image and sets no variable,
// such as LD_LIBRARY_PATH, that would affect the programs it starts.
// Tested by: tests/cluster/jobs/command_check.py
#pragma once

#include <string>

#include "common/result.h"

namespace dsj::agent {

/// Copies this process's own objects to `directory`, with contract.h's names. Existing files are
/// replaced; all users may read and execute them. Returns the number of files. Environment names
/// the path.
Result<int> install(const std::string& directory);

}  // namespace dsj::agent

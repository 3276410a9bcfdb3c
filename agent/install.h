// The agent as a guest in another image (launcher: Command): its own file, its loader and the
// libraries that it has loaded, in one directory; libtorch is not among them. Started by
// installed_agent_command() (worker_job.h) it needs nothing from that image, and it sets nothing
// that a program it starts could see, such as LD_LIBRARY_PATH.
// Tested by: tests/cluster/jobs/command_check.py
#pragma once

#include <string>

#include "common/result.h"

namespace dsj::agent {

/// Copies this process's own objects to `directory`, under contract.h's names. Existing files are
/// replaced; everybody may read and run them. Returns the number of files. Environment: names the
/// path.
Result<int> install(const std::string& directory);

}  // namespace dsj::agent

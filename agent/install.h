// The agent as a guest in another image (launcher: Command): its own file, its loader and the
// libraries that it has loaded, in one directory. libtorch is not among them. Started by
// installed_agent_command() (worker_job.h) it needs nothing of the image that it runs in, and sets
// nothing that a program it starts could see: no LD_LIBRARY_PATH.
#pragma once

#include <string>

#include "common/result.h"

namespace dsj::agent {

/// Copies this very process's objects. Names in `directory` are contract.h's; what is there is
/// replaced, everybody may read and run it. Returns how many files were written. Environment errors
/// with the path.
Result<int> install(const std::string& directory);

}  // namespace dsj::agent

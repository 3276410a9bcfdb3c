// --overwrite_output_dir: a run that starts anew in the output directory of an earlier run. The
// earlier run is moved into .dsj-overwritten next to each of its parts, and removed when the
// new run has a checkpoint or has ended without saving. Until then the user can move it back.
#pragma once

#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::cli {

inline constexpr char kOverwrittenDir[] = ".dsj-overwritten";

/// Moves only checkpoints, model, metrics, status and logs of the earlier run aside. Returns
/// whether there were any. Call it under the output directory's lock.
Result<bool> set_run_aside(Files& files, const std::string& output_dir);

/// Removes what set_run_aside() moved, but no file that a run did not write. Returns warnings
/// about failures and remaining files.
std::vector<std::string> remove_overwritten(Files& files, const std::string& output_dir);

}  // namespace dsj::cli

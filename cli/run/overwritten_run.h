// --overwrite_output_dir: a run that starts anew in the output directory of another. The earlier one is
// moved aside, into .dsj-overwritten beside each of its parts, and removed when the new one has a
// checkpoint, or has ended without saving any. Until then the user can move it back.
#pragma once

#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::cli {

inline constexpr char kOverwrittenDir[] = ".dsj-overwritten";

/// Moves checkpoints, model, metrics, status and logs of the earlier run aside; nothing else. Returns
/// whether there was any. Call it under the output directory's lock.
Result<bool> set_run_aside(Files& files, const std::string& output_dir);

/// Removes what set_run_aside() moved, and no file that a run did not write. Returns what failed or
/// stays, as warnings.
std::vector<std::string> remove_overwritten(Files& files, const std::string& output_dir);

}  // namespace dsj::cli

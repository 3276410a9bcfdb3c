// Composes one configuration from a file and the files in its `defaults` list, like Hydra. Entries:
// `../config/zero2@_here_`, `group: option`, `group@package: option`, `optional group: option`,
// `_self_`; a file may begin with `# @package a.b`. Later entries win; without _self_ the file
// itself comes last. Not supported: command-line overrides, config stores, pkg:// search paths.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/import/predefined.h"
#include "common/files/files.h"
#include "common/result.h"

namespace dsj::jobimport {

/// A predefined file that replaces a missing one.
struct Substitute {
  std::string name;     ///< "deepspeed_zero3"
  std::string missing;  ///< the path in the entry, relative to the file with the entry
  std::string place;    ///< "FILE: defaults[2]"
};

struct Composed {
  nlohmann::json value;                 ///< without its `defaults`
  std::vector<std::string> sources;     ///< files read, the first is the file itself
  std::vector<Substitute> substitutes;  ///< in the order of use
  std::vector<std::string> notes;       ///< entries that were skipped, with the reason
};

/// Names are searched next to the file with the entry, next to `path`, in `search_paths`, and
/// finally in `predefined` by their last part (except optional entries). Errors: a file is not
/// valid YAML (FILE:LINE:COLUMN) or missing, the defaults are circular (with the chain), or
/// there are more than 200 files.
Result<Composed> compose(Files& files, const std::string& path,
                         const std::vector<std::string>& search_paths,
                         const PredefinedFiles& predefined = {});

}  // namespace dsj::jobimport

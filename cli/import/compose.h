// One configuration out of a file and the files that its `defaults` list names, as Hydra composes
// them: `- ../config/zero2@_here_`, `- group: option`, `- group@package: option`, `- optional g:
// o`,
// `- _self_`, and `# @package a.b` at the head of a file. Later entries win; without _self_ the
// file itself comes last. Left out: command-line overrides, config stores, pkg:// search paths.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/import/predefined.h"
#include "common/files/files.h"
#include "common/result.h"

namespace dsj::jobimport {

/// A predefined file in the place of one that is not there.
struct Substitute {
  std::string name;     ///< "deepspeed_zero3"
  std::string missing;  ///< the path that the entry names, as seen from the file that names it
  std::string place;    ///< "FILE: defaults[2]"
};

struct Composed {
  nlohmann::json value;                 ///< without its `defaults`
  std::vector<std::string> sources;     ///< files read, the first is the file itself
  std::vector<Substitute> substitutes;  ///< in the order met
  std::vector<std::string> notes;       ///< entries that were skipped, with the reason
};

/// Names are looked up beside the file that names them, beside `path`, then in `search_paths`, last
/// among `predefined` by their last part; an optional entry is not looked up there. Errors: what a
/// file's YAML lacks (FILE:LINE:COLUMN), a file that is not there, a circle (with its chain), more
/// than 200 files.
Result<Composed> compose(Files& files, const std::string& path,
                         const std::vector<std::string>& search_paths,
                         const PredefinedFiles& predefined = {});

}  // namespace dsj::jobimport

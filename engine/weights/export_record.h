// Records what an export wrote, so that a later one recognises its own model/.
// OUT/.model.export.json beside the model lists each file with its size and a checksum of its ends.
// Other files in the directory are foreign, and an export never removes them.
// Tested by: tests/engine/weights/export_record_test.cc
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::weights {

/// Identifies a file by its size and the XXH3-64 of its first and last 64 KiB, to save reading.
struct FileMark {
  int64_t bytes = 0;
  uint64_t ends = 0;
  bool operator==(const FileMark&) const = default;
};
Result<FileMark> mark_of(Files& files, const std::string& path);

/// By file name, for a directory without subdirectories.
using FileMarks = std::map<std::string, FileMark>;

/// The current content of an export's target.
struct Occupant {
  enum class Kind {
    None,      ///< nothing, or an empty directory
    OwnModel,  ///< only what an earlier export wrote
    Foreign    ///< a link, a file, or a directory with other content
  } kind = Kind::None;
  std::string what;  ///< Foreign: the reason, for messages
};
/// `target`: OUT/model. Error: it could not be read.
Result<Occupant> occupant_of(Files& files, const std::string& target);

/// Records the content of `staging`, which is about to become `target`. An earlier export in
/// `target` stays recorded, because the process may die before they are swapped. Durable.
Status record_export(Files& files, const std::string& staging, const std::string& target);

/// "out/model" → "out/.model.export.json".
std::string export_record_path(const std::string& target);

/// "out/model", ".staging" → "out/.model.staging".
std::string hidden_beside(std::string_view target, const char* suffix);

}  // namespace dsj::weights

// What an export wrote, so that a later one knows its own model/ again: OUT/.model.export.json, which
// lies beside the model, names each file with its size and a checksum of its ends. What a directory
// holds besides that was put there by somebody, and an export removes none of it.
// Tested by: tests/engine/weights/export_record_test.cc
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::weights {

/// A file by its size and the XXH3-64 of its first and last 64 KiB: a whole model is not read again.
struct FileMark {
  int64_t bytes = 0;
  uint64_t ends = 0;
  bool operator==(const FileMark&) const = default;
};
Result<FileMark> mark_of(Files& files, const std::string& path);

/// By their names. Of a directory without directories.
using FileMarks = std::map<std::string, FileMark>;

/// What lies where a model is to be exported.
struct Occupant {
  enum class Kind {
    None,      ///< nothing, or an empty directory
    OwnModel,  ///< what an earlier export wrote, and nothing else
    Foreign    ///< a link, a file, or a directory with anything else
  } kind = Kind::None;
  std::string what;  ///< Foreign: for people: "README.md was written by no export"
};
/// `target`: OUT/model. Error: it could not be read.
Result<Occupant> occupant_of(Files& files, const std::string& target);

/// Records what lies in `staging`, which is about to become `target`. What lies there now, if it is
/// an earlier export, stays recorded: the process may die before they are swapped. Durable.
Status record_export(Files& files, const std::string& staging, const std::string& target);

/// "out/model" → "out/.model.export.json".
std::string export_record_path(const std::string& target);

/// "out/model", ".staging" → "out/.model.staging".
std::string hidden_beside(std::string_view target, const char* suffix);

}  // namespace dsj::weights

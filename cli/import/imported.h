// What every reader of this room hands on: a DeepSpeedJob made of a file or a command line of
// another launcher, and what could not be carried over. Nothing read here is ever run: expressions,
// shell scripts and interpolations go through small grammars, and what those do not know is named.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "job/dsconfig/resolution.h"
#include "job/spec/sharding.h"

namespace dsj::jobimport {

/// A field that the manifest cannot do without and that the source does not decide.
struct Missing {
  std::string path;     ///< "spec.workers.slotsPerWorker"
  std::string message;  ///< why
};

struct Imported {
  nlohmann::json manifest;              ///< a DeepSpeedJob; relative paths as the source wrote them
  std::string origin;                   ///< "FILE, role actor_train"
  std::vector<Missing> missing;         ///< each must come from an override, or finish() fails
  std::vector<std::string> predefined;  ///< files of dsj's that stand in for the source's own
  std::vector<std::string> left_open;   ///< the user has a word to add: placeholders, environment
  /// Set: the ds_config is take_sharding()'s, and this of left_open says so. One that is named replaces it.
  std::optional<std::string> made_config = {};
  std::vector<std::string> not_carried;  ///< in the source, not in the job, with the reason
};

/// A file's value as an argument of a line: true → "True", [a, b] → "a,b", an object → its JSON.
std::string argument_word(const nlohmann::json& value);

/// A finding about a line, as not_carried and left_open have it: "--x: message (hint)".
std::string sentence_of(const dsconfig::Finding& finding);

/// Writes the ds_config of a source that names none, and says so. A base in 4 bits is not sharded:
/// stage 2.
void take_sharding(Imported& imported, jobspec::Sharding sharding);

/// Applies overrides ("spec.path=value", as `dsj run --set`) and checks that nothing is missing.
/// BadInput lists all that is.
Status finish(Imported& imported, const std::vector<std::string>& overrides);

/// Makes the relative paths of the manifest absolute, against `base`: for a manifest that is not
/// written where the source was run. A model name that is no path of an existing directory stays.
void make_paths_absolute(nlohmann::json& manifest, const std::string& base);

/// The manifest as YAML below a comment that says where it comes from and what it lacks.
std::string to_text(const Imported& imported);

/// "Qwen2.5-7B rlvr/actor" → "qwen2-5-7b-rlvr-actor": a valid metadata.name, at most 40 letters.
std::string job_name(const std::string& words);

}  // namespace dsj::jobimport

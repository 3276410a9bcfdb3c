// The result of every reader of this room: a DeepSpeedJob made from a file or command line of
// another launcher, and what could not be carried over. Nothing is executed: expressions, shell
// scripts and interpolations are parsed by small grammars, and what these do not cover is reported.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "job/dsconfig/read/resolution.h"
#include "job/spec/sharding.h"

namespace dsj::jobimport {

/// A field that the manifest requires and the source does not determine.
struct Missing {
  std::string path;     ///< "spec.workers.slotsPerWorker"
  std::string message;  ///< why
};

struct Imported {
  nlohmann::json manifest;              ///< a DeepSpeedJob; relative paths as in the source
  std::string origin;                   ///< "FILE, role actor_train"
  std::vector<Missing> missing;         ///< each needs an override, or finish() fails
  std::vector<std::string> predefined;  ///< files of dsj that replace the source's own
  std::vector<std::string> left_open;   ///< what the user must complete: placeholders, environment
  /// If take_sharding() made the ds_config: its entry in left_open. A named file replaces it.
  std::optional<std::string> made_config = {};
  std::vector<std::string> not_carried;  ///< in the source but not in the job, with the reason
};

/// Converts a value to a command-line argument: true → "True", [a, b] → "a,b", an object → JSON.
std::string argument_word(const nlohmann::json& value);

/// A finding about a line in the form of not_carried and left_open: "--x: message (hint)".
std::string sentence_of(const dsconfig::Finding& finding);

/// Writes the ds_config for a source that names none, and reports it. With a 4-bit base model
/// the stage is 2, because such weights are not sharded.
void take_sharding(Imported& imported, jobspec::Sharding sharding);

/// Applies overrides ("spec.path=value", as `dsj run --set`) and checks that nothing is
/// missing. Errors: BadInput lists everything that is.
Status finish(Imported& imported, const std::vector<std::string>& overrides);

/// Makes the manifest's relative paths absolute, relative to `base`: for a manifest that is
/// written to another directory. A model name that is not an existing directory is kept.
void make_paths_absolute(nlohmann::json& manifest, const std::string& base);

/// The manifest as YAML, after a comment with its origin and what is missing.
std::string to_text(const Imported& imported);

/// "Qwen2.5-7B rlvr/actor" → "qwen2-5-7b-rlvr-actor": a valid metadata.name, at most 40 letters.
std::string job_name(const std::string& words);

}  // namespace dsj::jobimport

// Finds and describes checkpoints for `dsj checkpoint`, those of dsj and DeepSpeed's, without
// torch. It only reads.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::cli {

/// A checkpoint's description, printed as text or JSON.
struct FoundCheckpoint {
  std::string path;
  std::string writer;  ///< "dsj", "DeepSpeed 0.19.8", "DeepSpeed 0.19.8, universal"
  int64_t step = 0, skipped = 0, updates = 0;
  int world = 0;
  std::optional<int64_t> stage;
  std::optional<double> loss_scale;  ///< if it is dynamic
  int64_t parameters = 0, elements = 0, frozen = 0;
  std::vector<std::string> states;  ///< "master", "exp_avg" ...
  int64_t files = 0, bytes = 0;
  bool verified = false;           ///< every byte was read and its checksum compared
  std::vector<std::string> notes;  ///< differences between a run here and the writer
  std::optional<std::string> damage;
};
nlohmann::json to_json(const FoundCheckpoint& found);
/// Lines, each ending with '\n'.
std::string to_text(const FoundCheckpoint& found);

/// The checkpoints that a path leads to.
struct CheckpointPath {
  enum class Kind { Ours, DeepSpeeds } kind;
  /// Ours: all checkpoints, newest first. DeepSpeeds: one.
  std::vector<std::string> paths;
};
/// `path`: a run's output directory, its checkpoints directory, one step-<S>, a DeepSpeed
/// directory or a tag in it. Errors: BadInput if it is none of these.
Result<CheckpointPath> find_checkpoints(Files& files, const std::string& path);

/// `verify`: read every byte. Damage is reported in `damage`.
FoundCheckpoint describe_ours(Files& files, const std::string& path, bool verify);
FoundCheckpoint describe_deepspeeds(Files& files, const std::string& path, bool universal,
                                    bool verify);

}  // namespace dsj::cli

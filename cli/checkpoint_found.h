// What `dsj checkpoint` finds behind a path: checkpoints of ours or one of DeepSpeed, described without torch. It reads
// only.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::cli {

/// One checkpoint, for people and as JSON.
struct FoundCheckpoint {
  std::string path;
  std::string writer;  ///< "dsj", "DeepSpeed 0.19.8", "DeepSpeed 0.19.8, universal"
  int64_t step = 0, skipped = 0, updates = 0;
  int world = 0;
  std::optional<int64_t> stage;
  std::optional<double> loss_scale;  ///< a dynamic one
  int64_t parameters = 0, elements = 0, frozen = 0;
  std::vector<std::string> states;  ///< "master", "exp_avg" ...
  int64_t files = 0, bytes = 0;
  bool verified = false;           ///< every byte was read and checked
  std::vector<std::string> notes;  ///< what a run here would do otherwise than the writer
  std::optional<std::string> damage;
};
nlohmann::json to_json(const FoundCheckpoint& found);
/// Lines that end with '\n'.
std::string to_text(const FoundCheckpoint& found);

/// Where the path leads.
struct CheckpointPath {
  enum class Kind { Ours, DeepSpeeds } kind;
  /// Ours: each checkpoint, newest first. DeepSpeed's: the one.
  std::vector<std::string> paths;
};
/// `path`: a run's output directory, its checkpoints directory, one step-<S>; a DeepSpeed directory or one tag in it.
/// BadInput: it is none of these.
Result<CheckpointPath> find_checkpoints(Files& files, const std::string& path);

/// `verify`: reads every byte. What is wrong with it is in `damage`.
FoundCheckpoint describe_ours(Files& files, const std::string& path, bool verify);
FoundCheckpoint describe_deepspeeds(Files& files, const std::string& path, bool universal,
                                    bool verify);

}  // namespace dsj::cli

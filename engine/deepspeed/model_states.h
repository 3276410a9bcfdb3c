// Reads a model_states file: parameters, counters, schedule. Internal to engine/deepspeed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/deepspeed/ranges.h"
#include "engine/deepspeed/saved_file.h"

namespace dsj::deepspeed {

struct ModelStates {
  /// Parameters in flat order, per group (stage 3: per sub-group). Empty without ZeRO.
  std::vector<std::vector<Parameter>> groups;
  /// Tensors of `module` that are parameters, in its order, each tied parameter once.
  std::vector<weights::TensorInfo> module;
  std::vector<Parameter> frozen;
  std::map<std::string, weights::TensorInfo> frozen_fragments;  ///< this rank's slice, or all
  std::map<std::string, std::string> aliases;  ///< tied name → the parameter's name
  int64_t steps = 0, skipped = 0, samples = 0;
  /// Steps of the LR schedule; nullopt without a schedule.
  std::optional<int64_t> scheduled;
  int world = 1;        ///< data-parallel
  std::string version;  ///< DeepSpeed's
};

/// At stage 3 the tensors of `module` are empty. Errors: a field that every version writes is
/// missing, or the run used tensor parallelism.
Result<ModelStates> read_model_states(const SavedFile& file);

}  // namespace dsj::deepspeed

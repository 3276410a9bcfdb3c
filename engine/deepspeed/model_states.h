// What a model_states file says of a run: its parameters, counters and schedule. Internal to engine/deepspeed.
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
  /// Parameters in the order of the flat data, a list per group (stage 3: per sub-group). Empty: ZeRO is off.
  std::vector<std::vector<Parameter>> groups;
  /// Tensors of `module` that are parameters, in its order, without names that are only another name of one.
  std::vector<weights::TensorInfo> module;
  std::vector<Parameter> frozen;
  std::map<std::string, weights::TensorInfo> frozen_fragments;  ///< this rank's slice, or the whole
  std::map<std::string, std::string> aliases;  ///< tied name → the name that is kept
  int64_t steps = 0, skipped = 0, samples = 0;
  /// Updates that the LR schedule has seen; nullopt: no schedule.
  std::optional<int64_t> scheduled;
  int world = 1;        ///< data-parallel
  std::string version;  ///< DeepSpeed's
};

/// At stage 3 the tensors of `module` are empty. Error: a part that every version writes is missing;
/// the run was split by tensor parallelism.
Result<ModelStates> read_model_states(const SavedFile& file);

}  // namespace dsj::deepspeed

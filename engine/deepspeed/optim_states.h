// Reads the optimizer's state from an optim_states file, or from the model_states file of stage 0.
// Internal to engine/deepspeed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/deepspeed/ranges.h"
#include "engine/deepspeed/saved_file.h"

namespace dsj::deepspeed {

/// DeepSpeed's dynamic loss scale.
struct Scaler {
  double scale = 1;
  int64_t hysteresis = 1, step = 0, last_overflow = -1;
};

/// One tensor that the optimizer updates as a whole: a rank's part of a group, a sub-group, or a
/// parameter.
struct Updated {
  std::map<std::string, weights::TensorInfo>
      states;  ///< by torch's names: "exp_avg" ...; "master" if it is fp32
};

/// Numbers of a param group that affect an update: "lr", "weight_decay", "betas[0]" ...
using Options = std::map<std::string, double>;

struct OptimStates {
  int stage = 0;  ///< 0 to 3; BF16_Optimizer's form counts as 1
  int partitions = 1;
  std::vector<Updated> updated;  ///< in the order of the flat data
  std::vector<size_t> group_of;  ///< [updated]: its param group
  std::vector<Options> groups;   ///< [param group]
  std::vector<std::vector<int64_t>>
      alignment;                 ///< [group][parameter]: elements of padding after it
  std::optional<int64_t> step;   ///< the optimizer's count of updates, if it has one
  std::optional<Scaler> scaler;  ///< dynamic only
};

/// Reads an optim_states file (stages 1 to 3, BF16_Optimizer). Errors: a field is missing, or has
/// an unsupported form.
Result<OptimStates> read_optim_states(const SavedFile& file);
/// Reads a model_states file without ZeRO. With a fused optimizer the number of tensors is that of
/// its groups; then each Updated is a flat group.
Result<OptimStates> read_plain_optimizer(const SavedFile& file);
/// Reads zero/optimizer_state.pt of a universal checkpoint: groups, scaler, stage; no tensors.
Result<OptimStates> read_universal_optimizer(const SavedFile& file);

}  // namespace dsj::deepspeed

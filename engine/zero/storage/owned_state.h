// A flat's state for the elements that this rank owns: the shard that gathers read (stage 3), a
// separate fp32 master, the optimizer's states. The plan decides where each is stored
// (job/layout/offload.h). The flat iterates over runs; only one run at a time is in memory.
//
// One thread. Every call may throw StorageError.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "engine/zero/storage/shard_store.h"

namespace dsj::zero {

/// A run of the shard with its tensors, [numel] each.
struct OwnedRun {
  int64_t begin = 0, numel = 0;  ///< elements of the shard
  std::vector<at::Tensor> optimizer;
  at::Tensor parameters;
  bool in_file = false;  ///< a tensor is in a tile, which is reused after the call
};

class OwnedState {
 public:
  /// A store without parts holds nothing.
  OwnedState(int64_t shard_numel, ShardStoreOptions optimizer, ShardStoreOptions parameters);

  bool has_parameters() const { return !parameters_.parts().empty(); }
  /// The parameter shard if it is one tensor in memory, else undefined.
  at::Tensor whole_parameters() { return parameters_.whole(0); }

  /// Calls f for every run, in ascending order, with the requested tensors in memory; nullopt: not
  /// requested. With Access::Write f must overwrite all of a run.
  void for_runs(std::optional<Access> optimizer, std::optional<Access> parameters,
                const std::function<void(const OwnedRun&)>& f);
  /// Whether any part of the optimizer's states is outside the device.
  bool optimizer_elsewhere() const;
  /// Calls f(begin, tensor, stays) for every part of the parameter shard, and after each part
  /// starts to read what the step gathers next. `stays`: the tensor is the part's own memory; else
  /// it is valid only during the call.
  void for_parameters(const std::function<void(int64_t, const at::Tensor&, bool)>& f);
  std::vector<int> parameter_tiles() const { return parameters_.tiles(); }

 private:
  struct Run {
    int64_t begin, numel;
    int optimizer, parameters;  ///< index of the part, or -1
  };
  ShardStore optimizer_, parameters_;
  std::vector<Run> runs_;
};

}  // namespace dsj::zero

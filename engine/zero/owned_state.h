// What a flat keeps of the elements that this rank owns: the shard that gathers read (stage 3), the
// fp32 master where it is separate, the optimizer's states. Each lies where the plan puts it
// (common/layout/offload.h); whoever wants it walks over runs that are in memory one at a time.
//
// One thread. May throw StorageError.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "engine/zero/shard_store.h"

namespace dsj::zero {

/// A run of the shard with its tensors, each [numel].
struct OwnedRun {
  int64_t begin = 0, numel = 0;  ///< elements of the shard
  std::vector<at::Tensor> optimizer;
  at::Tensor parameters;
};

class OwnedState {
 public:
  /// Stores without parts have nothing of that kind.
  OwnedState(int64_t shard_numel, ShardStoreOptions optimizer, ShardStoreOptions parameters);

  bool has_parameters() const { return !parameters_.parts().empty(); }
  /// The parameter shard where it is one tensor in memory, else undefined.
  at::Tensor whole_parameters() { return parameters_.whole(0); }

  /// Calls f for every run, ascending; what is asked for (nullopt: not) is in memory during the
  /// call. With Access::Write f overwrites all of it.
  void for_runs(std::optional<Access> optimizer, std::optional<Access> parameters,
                const std::function<void(const OwnedRun&)>& f);
  /// Calls f(begin, tensor) for every part of the parameter shard, then starts reading what the
  /// step gathers next.
  void for_parameters(const std::function<void(int64_t, const at::Tensor&)>& f);
  std::vector<int> parameter_tiles() const { return parameters_.tiles(); }

 private:
  struct Run {
    int64_t begin, numel;
    int optimizer, parameters;  ///< parts, or -1
  };
  ShardStore optimizer_, parameters_;
  std::vector<Run> runs_;
};

}  // namespace dsj::zero

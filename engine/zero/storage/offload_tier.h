// The places of this process's offloaded state: the plan, the files on NVMe and their tiles.
// ModelState makes it before the flats, because it provides the options of their stores.
// Tested by: tests/engine/train/offload_files_test.cc, tests/engine/train/offload_memory_test.cc
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/aio/scratch.h"
#include "engine/optim/optimizer.h"
#include "engine/zero/storage/shard_store.h"
#include "job/dsconfig/config/resolved.h"
#include "job/layout/offload.h"
#include "job/layout/partition.h"

namespace dsj::zero {

/// What the tier needs from its caller.
struct OffloadHost {
  std::string job = "job";  ///< names the scratch directories
  int64_t attempt = 1;
  /// Called with messages for the user: which file I/O is used and why not a faster one, which
  /// directories were made, what pin_memory does here.
  std::function<void(const std::string&)> note = {};
  /// Called for each removed directory of a dead attempt.
  std::function<void(const std::string&)> warn = {};
  /// For tests: replaces files under nvme_path. `name`: "optimizer" or "parameters".
  using Open = std::function<Result<std::unique_ptr<aio::BlockFile>>(const std::string& name,
                                                                     int64_t bytes)>;
  Open open = {};
};

class OffloadTier {
 public:
  /// Reserves the files' space on the disk. Throws StorageError, which names the key, the path and
  /// the bytes: BadInput for a wrong path, Environment for missing space or permission.
  OffloadTier(const dsconfig::ResolvedConfig& config, const layout::FlatPlan& flats, int world,
              int rank, at::Device device, const OffloadHost& host);

  const layout::OffloadPlan& plan() const { return plan_; }
  /// Options for the stores of the flat with this index.
  ShardStoreOptions optimizer(int index) const;
  ShardStoreOptions parameters(int index) const;
  /// The tiles of parameters on NVMe; null if no parameters are there.
  TileCache* parameter_tiles() { return parameters_.get(); }

 private:
  std::shared_ptr<TileCache> open(const std::string& name, const std::string& root,
                                  const std::vector<std::vector<layout::Part>>& parts,
                                  const std::vector<int64_t>& vectors, int64_t bytes,
                                  TileCacheOptions options, const OffloadHost& host);
  aio::Scratch& scratch(const std::string& root, const std::string& key, const OffloadHost& host);
  void say(const OffloadHost& host, const std::string& text) const;

  const dsconfig::Offload offload_;
  const layout::OffloadPlan plan_;
  const int rank_;
  const at::Device device_;
  const at::ScalarType compute_, vectors_;
  const bool separate_master_;
  std::vector<std::vector<optim::StateSpec>> states_;             ///< [flat]
  std::vector<bool> frozen_;                                      ///< [flat]
  std::map<std::string, std::unique_ptr<aio::Scratch>> scratch_;  ///< by root; outlives the caches
  std::shared_ptr<TileCache> optimizer_, parameters_;
};

}  // namespace dsj::zero

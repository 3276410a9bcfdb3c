// Vectors of the length of a flat's shard. The plan puts each part on the device, in host memory,
// or in a file with a few tiles in memory.
//
// One thread. open() and close() may throw StorageError.
// Tested by: tests/engine/zero/storage/owned_state_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "engine/memory/counting_allocator.h"
#include "engine/zero/storage/tile_cache.h"
#include "job/layout/offload.h"

namespace dsj::zero {

struct ShardStoreOptions {
  std::vector<layout::Part> parts;  ///< cover the shard; empty if there are no vectors
  std::vector<double> initial;      ///< [vector]: initial value of its elements
  at::ScalarType type = at::kFloat;
  at::Device device = at::kCPU;  ///< for parts on the device
  memory::Class on_device = memory::Class::Optimizer;
  bool pinned = false;                    ///< host memory is page-locked
  std::shared_ptr<TileCache> tiles = {};  ///< for parts in a file
  int first_tile = 0;                     ///< this store's first tile in `tiles`
};

enum class Access { Read, Write, ReadWrite };

class ShardStore {
 public:
  explicit ShardStore(ShardStoreOptions options);

  int vectors() const { return static_cast<int>(options_.initial.size()); }
  const std::vector<layout::Part>& parts() const { return options_.parts; }
  /// The whole vector if it is contiguous in memory, else undefined.
  at::Tensor whole(int vector);
  /// All vectors of a part, [numel] each, valid until close(). With Access::Write the caller must
  /// overwrite all of them. `read_next`: also starts to read the next tile of the file, which may
  /// belong to another store.
  std::vector<at::Tensor> open(int part, Access access, bool read_next = false);
  void close(int part, Access access);
  /// Starts to read the tiles that the step needs next (TileCache::set_order).
  void read_ahead() {
    if (options_.tiles) options_.tiles->read_ahead();
  }
  /// This store's tiles, in order.
  std::vector<int> tiles() const;
  bool in_file(int part) const { return options_.parts[part].place == layout::Place::File; }

 private:
  std::vector<at::Tensor>& memory(int part);
  int tile_of(int part) const { return options_.first_tile + tile_index_[part]; }

  const ShardStoreOptions options_;
  std::vector<int> tile_index_;                  ///< [part]: its tile, counted within the store
  std::vector<std::vector<at::Tensor>> memory_;  ///< [part][vector]; allocated at the first use
  std::vector<bool> fresh_;                      ///< [part]: in a file and never written
};

}  // namespace dsj::zero

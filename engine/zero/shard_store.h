// Vectors as long as a flat's shard, wherever the plan puts each part of them: on the device, in
// host memory, or in a file of which a few tiles are in memory.
//
// One thread. open() and close() may throw StorageError.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "common/layout/offload.h"
#include "engine/memory/counting_allocator.h"
#include "engine/zero/tile_cache.h"

namespace dsj::zero {

struct ShardStoreOptions {
  std::vector<layout::Part> parts;  ///< cover the shard; none: the store has no vectors
  std::vector<double> initial;      ///< one vector each: its elements before the first write
  at::ScalarType type = at::kFloat;
  at::Device device = at::kCPU;  ///< of the parts on the device
  memory::Class on_device = memory::Class::Optimizer;
  bool pinned = false;                    ///< host memory is page-locked
  std::shared_ptr<TileCache> tiles = {};  ///< of the parts in a file
  int first_tile = 0;                     ///< the first of them in `tiles`; the others follow
};

enum class Access { Read, Write, ReadWrite };

class ShardStore {
 public:
  explicit ShardStore(ShardStoreOptions options);

  int vectors() const { return static_cast<int>(options_.initial.size()); }
  const std::vector<layout::Part>& parts() const { return options_.parts; }
  /// The whole of a vector where all of it is in one piece of memory, else undefined.
  at::Tensor whole(int vector);
  /// All vectors of a part, [numel] each, until close(); Write: they are overwritten whole.
  /// `read_next`: starts reading the tile after this one, which may be another store's.
  std::vector<at::Tensor> open(int part, Access access, bool read_next = false);
  void close(int part, Access access);
  /// Starts reading the tiles that the step acquires next (TileCache::set_order).
  void read_ahead() {
    if (options_.tiles) options_.tiles->read_ahead();
  }
  /// Tiles of this store, in order.
  std::vector<int> tiles() const;
  bool in_file(int part) const { return options_.parts[part].place == layout::Place::File; }

 private:
  std::vector<at::Tensor>& memory(int part);
  int tile_of(int part) const { return options_.first_tile + tile_index_[part]; }

  const ShardStoreOptions options_;
  std::vector<int> tile_index_;                  ///< [part]: which of the store's tiles
  std::vector<std::vector<at::Tensor>> memory_;  ///< [part][vector]; allocated at the first use
  std::vector<bool> fresh_;                      ///< [part] in a file: never written
};

}  // namespace dsj::zero

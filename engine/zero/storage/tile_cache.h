// Keeps a few tiles of a block file in memory: reads ahead, holds tiles in use, writes behind. The
// memory is allocated once and bounds how much of the file is in memory.
//
// One thread. Every call may throw StorageError, which names the ds_config key, the path and the
// bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/aio/block_file.h"

namespace dsj::zero {

struct TileSpec {
  int64_t offset = 0, bytes = 0;  ///< in the file; multiples of aio::kAlign
};

struct TileCacheOptions {
  int slots = 1;                     ///< tiles in memory at a time
  int64_t slot_bytes = 0;            ///< size of the largest tile
  bool read_ahead = true;            ///< false: prefetch() does nothing
  bool write_behind = true;          ///< false: release() waits until the tile is written
  at::Device pinned_for = at::kCPU;  ///< page-locks memory for this device, unless CPU
  std::string key;                   ///< the ds_config key that errors name
};

class TileCache {
 public:
  TileCache(std::unique_ptr<aio::BlockFile> file, std::vector<TileSpec> tiles,
            const TileCacheOptions& options);
  ~TileCache();

  /// Returns the tile's bytes, valid until release(). Waits for its read, which prefetch() may have
  /// started. `read` false: the content is not needed. At most `slots` tiles can be held.
  std::span<std::byte> acquire(int tile, bool read);
  /// Releases a held tile. `changed`: starts to write it.
  void release(int tile, bool changed);
  /// Starts to read a tile. Returns false, and does nothing, if there is no such tile, if
  /// read_ahead is off, or if no slot is available. A slot is available if it is free, or if two
  /// writes are in flight (prefetch waits for the older one).
  bool prefetch(int tile);

  /// Sets the order in which a step will acquire tiles, for read_ahead().
  void set_order(std::vector<int> tiles);
  /// Call it at a new step: read_ahead() starts again at the first tile of the order.
  void rewind();
  /// Starts to read the next tiles of the order into slots that are free or only being written.
  void read_ahead();

 private:
  enum class State { Free, Reading, Held, Writing };
  struct Slot {
    State state = State::Free;
    int tile = -1;
    aio::Ticket ticket = 0;
    std::span<std::byte> bytes;
    int64_t age = 0;
  };
  Slot* find(int tile);
  /// Returns a free slot. If there is none, waits for the oldest write, else for the oldest read.
  Slot& free_slot();
  void start_read(Slot& slot, int tile);
  void wait(Slot& slot);

  const TileCacheOptions options_;
  const std::vector<TileSpec> tiles_;
  std::vector<at::Tensor> memory_;
  std::vector<Slot> slots_;
  std::vector<int> order_;
  size_t next_ = 0;  ///< index in order_ of the next tile to acquire
  int64_t clock_ = 0;
  std::unique_ptr<aio::BlockFile> file_;  ///< destroyed first: waits for I/O in flight
};

}  // namespace dsj::zero

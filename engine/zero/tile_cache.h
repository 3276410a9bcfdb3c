// A few tiles of a block file in memory: read ahead, held while somebody computes on them, written
// behind. The memory is taken once; nothing else of the file is ever in memory.
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
  int slots = 1;             ///< tiles in memory at a time
  int64_t slot_bytes = 0;    ///< of the largest tile
  bool read_ahead = true;    ///< false: prefetch() does nothing
  bool write_behind = true;  ///< false: release() waits until the tile is written
  bool pinned = false;       ///< page-locked memory, for copies to an accelerator
  std::string key;           ///< the ds_config key that errors name
};

class TileCache {
 public:
  TileCache(std::unique_ptr<aio::BlockFile> file, std::vector<TileSpec> tiles,
            const TileCacheOptions& options);
  ~TileCache();

  /// The tile's bytes, until release(). Waits for its read, which prefetch() may have begun.
  /// `read` false: the content does not matter. At most `slots` tiles are held at a time.
  std::span<std::byte> acquire(int tile, bool read);
  /// `changed`: starts writing it.
  void release(int tile, bool changed);
  /// Starts reading a tile if there is such a tile and a slot is free, or held by the older of two
  /// writes.
  bool prefetch(int tile);

  /// The order in which a step will acquire tiles, for read_ahead().
  void set_order(std::vector<int> tiles);
  /// The next step begins: read_ahead() starts from the first tile of the order.
  void rewind();
  /// Starts reading what comes next in the order, as far as slots are free.
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
  /// A slot that is free, or becomes so by waiting: the oldest write, then the oldest read.
  Slot& free_slot();
  void start_read(Slot& slot, int tile);
  void wait(Slot& slot);

  const TileCacheOptions options_;
  const std::vector<TileSpec> tiles_;
  std::vector<at::Tensor> memory_;
  std::vector<Slot> slots_;
  std::vector<int> order_;
  size_t next_ = 0;  ///< of order_: the next to be acquired
  int64_t clock_ = 0;
  std::unique_ptr<aio::BlockFile> file_;  ///< closed first: it waits for what is under way
};

}  // namespace dsj::zero

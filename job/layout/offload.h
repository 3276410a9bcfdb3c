// The placement of each shard's elements if optimizer state or parameters are offloaded: which part
// of which flat is on the device, in host memory or in a file, and the tiles of the file. Numbers
// only. The engine allocates by it, and the memory model counts with it.
#pragma once

#include <cstdint>
#include <vector>

#include "job/layout/partition.h"

namespace dsj::layout {

enum class Place { Device, Host, File };

/// Elements: every part in a file begins at a multiple of it, 4 KiB in a 16-bit type.
inline constexpr int64_t kTileAlign = 2048;
/// Bytes: everything in a file begins and ends at a multiple of it (engine/aio).
inline constexpr int64_t kFileAlign = 4096;

/// A run of a flat's shard in one place; in a file at most one tile.
struct Part {
  Place place = Place::Device;
  int64_t begin = 0, numel = 0;  ///< elements of the shard
  int64_t file_offset = 0;       ///< bytes; its vectors are consecutive, each padded
  friend bool operator==(const Part&, const Part&) = default;
};

/// The place of one kind of state: the optimizer's vectors, or the parameter shards that are
/// gathered.
struct Placement {
  Place place = Place::Device;
  double ratio = 1;           ///< share of each shard in `place`; the rest is on the device
  int64_t host_first = 0;     ///< File: so many first elements of all shards stay in memory
  int64_t staging = 0;        ///< File: maximum elements of one vector in memory at a time
  int64_t tiles_at_once = 1;  ///< File: minimum number of tiles in memory at the same time
};

struct OffloadedFlat {
  int64_t shard_numel = 0;
  int optimizer_vectors = 0;  ///< the states, plus a separate master
  int parameter_bytes = 0;    ///< per element of the parameter shard; 0: no such shard
};

struct OffloadInput {
  std::vector<OffloadedFlat> flats;
  Placement optimizer, parameters;
  int64_t optimizer_bytes = 4;  ///< per element of an optimizer's vector
};

struct OffloadPlan {
  std::vector<std::vector<Part>> optimizer, parameters;  ///< [flat]: cover the shard, ascending
  int64_t tile = 0;                                      ///< elements of the largest tile in a file
  int64_t optimizer_tile_bytes = 0, parameter_tile_bytes = 0;  ///< of one tile in memory
  int optimizer_tiles = 0, parameter_tiles = 0;                ///< in memory at a time
  int64_t optimizer_file_bytes = 0, parameter_file_bytes = 0;  ///< of each file

  /// Whether a part of the flat's optimizer states is not on the device.
  bool states_leave(int flat) const;
  /// Bytes of staging memory, including the losses of alignment.
  int64_t staging_bytes() const {
    return (optimizer_tile_bytes + kFileAlign) * optimizer_tiles +
           (parameter_tile_bytes + kFileAlign) * parameter_tiles;
  }
};

OffloadPlan plan_offload(const OffloadInput& input);

/// Bytes of `vectors` vectors of `numel` elements in a file.
int64_t file_bytes(int64_t numel, int64_t vectors, int64_t element_bytes);

}  // namespace dsj::layout

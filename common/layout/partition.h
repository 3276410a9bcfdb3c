// ZeRO's arithmetic: where every parameter lies in its flat, how a flat is cut into chunks, which
// slice of each chunk a rank owns. Numbers only: no tensors, no torch, no communication.
//
//   flat   = parameters of one unit, each aligned to kAlign elements, padded at the end; trained
//   and frozen ones (LoRA) have flats of their own
//   chunk  = a run of the flat of at most the bucket size, a multiple of world x kAlign; one
//   collective slice  = chunk / world; rank r owns slice r of every chunk shard  = a rank's slices,
//   in chunk order, contiguous in its own storage
//
// Reduce-scatter and all-gather use the same chunks, so a gather is in place and a bucket smaller
// than a unit still gives each rank its own slice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/layout/units.h"

namespace dsj::layout {

/// Elements: 64 bytes in a 16-bit type, 128 in fp32.
inline constexpr int64_t kAlign = 32;

/// One parameter in a flat.
struct Slot {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;  ///< elements from the flat's start
  int64_t numel = 0;
};

struct Chunk {
  int64_t offset = 0;        ///< elements from the flat's start
  int64_t numel = 0;         ///< a multiple of world x kAlign
  int64_t slice = 0;         ///< numel / world
  int64_t shard_offset = 0;  ///< where the slice lies in the shard
};

/// A run of one parameter's elements held in a shard: what checkpoints name.
struct Range {
  int64_t slot = 0;
  int64_t offset = 0;  ///< elements from the parameter's start
  int64_t numel = 0;
  int64_t shard_offset = 0;
  int64_t flat_offset = 0;
};

/// Padding: a run of the flat that belongs to no parameter.
struct Gap {
  int64_t offset = 0, numel = 0;
};

class FlatLayout {
 public:
  /// `chunk_limit` in elements, > 0: no chunk is larger, but for the floor of world x kAlign.
  /// The parameters are all trained or all frozen (DSJ_CHECK).
  FlatLayout(std::string name, const std::vector<Parameter>& parameters, int world,
             int64_t chunk_limit);

  const std::string& name() const { return name_; }
  int world() const { return world_; }
  /// Read only: no gradient, no master, no moments.
  bool frozen() const { return frozen_; }
  int64_t numel() const { return numel_; }  ///< with padding
  int64_t shard_numel() const { return numel_ / world_; }
  int64_t parameter_numel() const { return parameter_numel_; }  ///< without padding
  const std::vector<Slot>& slots() const { return slots_; }
  const std::vector<Chunk>& chunks() const { return chunks_; }
  const std::vector<Gap>& gaps() const { return gaps_; }

  /// What `rank` owns, ascending in flat order.
  std::vector<Range> ranges(int rank) const;

 private:
  std::string name_;
  int world_;
  bool frozen_;
  int64_t numel_ = 0, parameter_numel_ = 0;
  std::vector<Slot> slots_;
  std::vector<Chunk> chunks_;
  std::vector<Gap> gaps_;
};

/// How a model's parameters are dealt to flats.
struct FlatPlan {
  struct Place {
    int flat = 0;  ///< index into flats
    int slot = 0;
  };
  std::vector<FlatLayout>
      flats;  ///< those of the units with sharded parameters, in unit order; then the persisted
  std::vector<int> unit_flat;    ///< per unit: the flat of its trained ones, or -1
  std::vector<int> unit_frozen;  ///< per unit: the flat of its frozen ones, or -1
  int persisted = -1;            ///< the flat of small trained parameters kept whole, or -1
  int persisted_frozen = -1;     ///< the same of frozen ones
  std::vector<std::vector<Place>> places;  ///< [unit][parameter]
  bool is_persisted(int flat) const { return flat == persisted || flat == persisted_frozen; }
};

struct FlatPlanOptions {
  int shard_world = 1;                ///< 1: nothing is sharded (stage 0)
  int64_t chunk_limit = 500'000'000;  ///< elements
  int64_t persistence_threshold =
      0;  ///< parameters of at most this many elements stay whole; 0: none
  /// Cap on their sum, taken in registration order.
  int64_t model_persistence_threshold = INT64_MAX;
};

FlatPlan plan_flats(const std::vector<UnitSpec>& units, const FlatPlanOptions& options);

}  // namespace dsj::layout

// ZeRO's arithmetic: the position of each parameter in its flat, the chunks of a flat, and the
// slice of each chunk that a rank owns. Numbers only: no tensors, no torch, no communication.
//
//   flat     the parameters of one unit, each aligned to kAlign elements, padded at the end;
//            trained, frozen (LoRA) and packed parameters (QLoRA) have flats of their own. Where an
//            optimizer works on blocks, trained flats are aligned to these instead; packed ones are
//            aligned to theirs, and every rank keeps them whole
//   chunk    a run of a flat, at most the bucket size and a multiple of world x the alignment: one
//            collective
//   slice    chunk / world; rank r owns slice r of every chunk
//   shard    a rank's slices in chunk order, contiguous in its own storage
//
// Reduce-scatter and all-gather use the same chunks: a gather is in place, and a bucket smaller
// than a unit still gives each rank its own slice.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "job/layout/units.h"

namespace dsj::layout {

/// Elements: 64 bytes in a 16-bit type, 128 in fp32.
inline constexpr int64_t kAlign = 32;

/// Elements of a packed parameter with one scale (packing.h).
inline constexpr int64_t kPackedBlock = 64;

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// One parameter in a flat.
struct Slot {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;  ///< elements from the flat's start
  int64_t numel = 0;
};

struct Chunk {
  int64_t offset = 0;        ///< elements from the flat's start
  int64_t numel = 0;         ///< a multiple of world x the flat's alignment
  int64_t slice = 0;         ///< numel / world
  int64_t shard_offset = 0;  ///< of the slice, in the shard
};

/// A run of one parameter's elements in a shard, as checkpoints name it.
struct Range {
  int64_t slot = 0;
  int64_t offset = 0;  ///< elements from the parameter's start
  int64_t numel = 0;
  int64_t shard_offset = 0;
  int64_t flat_offset = 0;
};

/// Padding: a run of a flat that belongs to no parameter.
struct Gap {
  int64_t offset = 0, numel = 0;
};

class FlatLayout {
 public:
  /// `chunk_limit`: maximum elements of a chunk, > 0, but at least world x align is allowed. The
  /// parameters must have equal `frozen` and `packing` (DSJ_CHECK). `align`: a multiple of kAlign.
  FlatLayout(std::string name, const std::vector<Parameter>& parameters, int world,
             int64_t chunk_limit, int64_t align = kAlign);

  const std::string& name() const { return name_; }
  int world() const { return world_; }
  /// Whether it is read only: no gradient, no master, no moments.
  bool frozen() const { return frozen_; }
  Packing packing() const { return packing_; }
  int64_t numel() const { return numel_; }  ///< with padding
  int64_t shard_numel() const { return numel_ / world_; }
  int64_t parameter_numel() const { return parameter_numel_; }  ///< without padding
  const std::vector<Slot>& slots() const { return slots_; }
  const std::vector<Chunk>& chunks() const { return chunks_; }
  const std::vector<Gap>& gaps() const { return gaps_; }

  /// The runs that `rank` owns, in flat order.
  std::vector<Range> ranges(int rank) const;

 private:
  std::string name_;
  int world_;
  bool frozen_;
  Packing packing_;
  int64_t numel_ = 0, parameter_numel_ = 0;
  std::vector<Slot> slots_;
  std::vector<Chunk> chunks_;
  std::vector<Gap> gaps_;
};

/// The flat and the slot of each parameter of a model.
struct FlatPlan {
  struct Place {
    int flat = 0;  ///< index into flats
    int slot = 0;
  };
  std::vector<FlatLayout> flats;  ///< sharded ones in unit order, then persisted ones
  std::vector<int> unit_flat;     ///< [unit]: the flat of its trained parameters, or -1
  std::vector<int> unit_frozen;   ///< [unit]: the flat of its frozen parameters, or -1
  std::vector<int> unit_packed;   ///< [unit]: the flat of its packed parameters, or -1
  int persisted = -1;             ///< the flat of small trained parameters that stay whole, or -1
  int persisted_frozen = -1;      ///< the same for frozen ones
  std::vector<std::vector<Place>> places;  ///< [unit][parameter]
  bool is_persisted(int flat) const { return flat == persisted || flat == persisted_frozen; }
};

struct FlatPlanOptions {
  int shard_world = 1;                ///< 1: nothing is sharded (stage 0)
  int64_t chunk_limit = INT64_MAX;    ///< elements per collective
  int64_t persistence_threshold = 0;  ///< elements; parameters up to this stay whole; 0: none
  /// Cap on the sum of these (elements), applied in registration order.
  int64_t model_persistence_threshold = INT64_MAX;
  /// Parameters that get flats of their own, regardless of the thresholds: other parameters of
  /// their units with the same `frozen` are persisted. Null: none.
  std::function<bool(const Parameter&)> alone = nullptr;
  /// Parameters that are persisted regardless of the thresholds. Null: none.
  std::function<bool(const Parameter&)> whole = nullptr;
  /// Elements, a multiple of kAlign: trained parameters consist of blocks of this length, from
  /// their start on, and no block is split between two ranks.
  int64_t align = kAlign;
  int64_t frozen_align = kAlign;  ///< the same for frozen ones that are not packed
};

FlatPlan plan_flats(const std::vector<UnitSpec>& units, const FlatPlanOptions& options);

}  // namespace dsj::layout

// ZeRO's stages as data: what a rank keeps whole, what it shards, when ranks exchange it. The
// engine (engine/zero/flat/flat) and the memory model (job/plan) use this table. Neither compares stage
// numbers. Pure.
#pragma once

#include <algorithm>
#include <array>

namespace dsj::layout {

/// What a rank keeps of a flat between two uses.
enum class Kept { Whole, Shard };

/// When a flat's parameters are gathered.
enum class Gathered {
  Never,        ///< every rank updates every element
  AfterUpdate,  ///< every rank updated its slices of a whole copy
  AroundUse,    ///< the whole copy exists while the step schedule needs it (layout/schedule.h)
};

/// When a flat's gradient is reduced.
enum class Reduced {
  LastMicroStep,   ///< each rank first sums its own micro-steps, in a whole gradient
  EveryMicroStep,  ///< the whole gradient exists from backward until it is reduced
};

struct Stage {
  int number = 0;
  Kept parameters = Kept::Whole;  ///< the working copy
  Kept gradient = Kept::Whole;    ///< between micro-steps
  Kept optimizer = Kept::Whole;   ///< fp32 master and optimizer states
  Gathered gathered = Gathered::Never;
  Reduced reduced = Reduced::LastMicroStep;

  constexpr bool shards_parameters() const { return parameters == Kept::Shard; }
  /// Whether each rank updates its own shard. If so, a reduction produces the shard
  /// (reduce-scatter), else the whole gradient (all-reduce).
  constexpr bool shards_update() const { return optimizer == Kept::Shard; }
  constexpr bool reduces_every_micro_step() const { return reduced == Reduced::EveryMicroStep; }
};

// number, parameters, gradient, optimizer, gathered, reduced
inline constexpr std::array<Stage, 4> kStages = {{
    {0, Kept::Whole, Kept::Whole, Kept::Whole, Gathered::Never, Reduced::LastMicroStep},
    {1, Kept::Whole, Kept::Whole, Kept::Shard, Gathered::AfterUpdate, Reduced::LastMicroStep},
    {2, Kept::Whole, Kept::Shard, Kept::Shard, Gathered::AfterUpdate, Reduced::EveryMicroStep},
    {3, Kept::Shard, Kept::Shard, Kept::Shard, Gathered::AroundUse, Reduced::EveryMicroStep},
}};

/// The stage of one flat. The flat of small parameters that stay whole at stage 3 (persisted) has
/// stage 2.
constexpr const Stage& stage_of_flat(const Stage& stage, bool persisted) {
  return persisted ? kStages[std::min(stage.number, 2)] : stage;
}

}  // namespace dsj::layout

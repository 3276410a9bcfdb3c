// From a resolved config to the options of job/layout: which flats a run has, and what limits
// its schedule. In one place, so that the memory model and every rank compute the same. Pure.
#pragma once

#include <vector>

#include "job/dsconfig/resolved.h"
#include "job/layout/offload.h"
#include "job/layout/partition.h"
#include "job/layout/schedule.h"
#include "job/layout/stage.h"
#include "job/layout/units.h"
#include "job/plan/rank_groups.h"

namespace dsj::plan {

layout::FlatPlan plan_flats(const std::vector<layout::UnitSpec>& units,
                            const dsconfig::ResolvedConfig& config, int world);

/// Whether a frozen flat of this stage keeps its shard as codes (zero_quantized_nontrainable_weights).
bool keeps_codes(const layout::FlatLayout& flat, const layout::Stage& stage,
                 const dsconfig::ResolvedConfig& config);
/// Whether a flat's parameters travel as codes (zero_quantized_weights); a shard that is kept as codes
/// always does.
bool gathers_codes(const layout::FlatLayout& flat, const layout::Stage& stage,
                   const dsconfig::ResolvedConfig& config);
/// Where optimizer state and parameter shards lie.
layout::OffloadPlan plan_offload(const layout::FlatPlan& plan,
                                 const dsconfig::ResolvedConfig& config, int world);
/// Where states leave an accelerator, the sum of the gradient lies in host memory, too, and visits
/// the device (engine/zero/host_sum.h). So many sums have left and are still being copied.
inline constexpr size_t kGradientsLeaving = 1;
/// What an update copies because its tensors do not lie together, on an accelerator. Bytes, at most.
struct UpdateCopies {
  /// States in host memory, parameters on the device: these pass through kUpdateBlocks blocks of so
  /// many bytes in host memory. 0: none are needed.
  int64_t host_block = 0;
  /// States on the device, the rest not: copies there, at a time.
  int64_t device = 0;
};
inline constexpr int64_t kUpdateBlocks = 2;
UpdateCopies update_copies(const layout::FlatPlan& plan, const dsconfig::ResolvedConfig& config,
                           int world);
/// Whether a flat's fp32 master is the first of the optimizer's vectors. If not, it is the working
/// copy or the parameter shard.
bool separate_master(const dsconfig::ResolvedConfig& config);
/// Of the optimizer's vectors. A separate master is fp32, and the states with it.
dsconfig::Precision vector_type(const dsconfig::ResolvedConfig& config);
inline int64_t bytes_of(dsconfig::Precision precision) {
  return precision == dsconfig::Precision::Fp32 ? 4 : 2;
}
/// Elements that an update widens to fp32 at a time where masters or states have 16 bits.
inline constexpr int64_t kWidenedPiece = 1 << 20;
/// Bytes of these, at most. 0: masters are fp32.
int64_t update_scratch(const layout::FlatPlan& plan, const dsconfig::ResolvedConfig& config,
                       int world);
/// The vectors that the flat keeps for any optimizer; frozen: none. None of 8-bit AdamW, too, which
/// keeps its moments itself (eight_bit_plan.h).
std::vector<dsconfig::StateSpec> states_of_flat(const layout::FlatLayout& flat,
                                                const dsconfig::ResolvedConfig& config);
/// Vectors that the optimizer keeps for a flat, a separate master included; frozen: 0.
int optimizer_vectors(const layout::FlatLayout& flat, const dsconfig::ResolvedConfig& config);

layout::ScheduleLimits schedule_limits(const dsconfig::ResolvedConfig& config, int world);

}  // namespace dsj::plan

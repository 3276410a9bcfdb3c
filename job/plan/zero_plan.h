// Derives the options of job/layout from a resolved config: the flats of a run, and the limits of
// its schedule. The memory model and every rank call it, so they compute the same. Pure.
#pragma once

#include <vector>

#include "job/dsconfig/config/resolved.h"
#include "job/layout/offload.h"
#include "job/layout/partition.h"
#include "job/layout/schedule.h"
#include "job/layout/stage.h"
#include "job/layout/units.h"
#include "job/plan/rank_groups.h"

namespace dsj::plan {

layout::FlatPlan plan_flats(const std::vector<layout::UnitSpec>& units,
                            const dsconfig::ResolvedConfig& config, int world);

/// Whether a flat of this stage stores its shard as codes (zero_quantized_nontrainable_weights).
bool keeps_codes(const layout::FlatLayout& flat, const layout::Stage& stage,
                 const dsconfig::ResolvedConfig& config);
/// Whether a flat's parameters are sent as codes (zero_quantized_weights). A shard that is stored
/// as codes always is.
bool gathers_codes(const layout::FlatLayout& flat, const layout::Stage& stage,
                   const dsconfig::ResolvedConfig& config);
/// Where optimizer states and parameter shards are stored.
layout::OffloadPlan plan_offload(const layout::FlatPlan& plan,
                                 const dsconfig::ResolvedConfig& config, int world);
/// If an accelerator's states are offloaded, the gradient's sum is offloaded too and copied to the
/// device for use (engine/zero/flat/host_sum.h). The number of offloads in flight.
inline constexpr size_t kGradientsLeaving = 1;
/// The most bytes that an update on an accelerator copies because its tensors are on two devices.
struct UpdateCopies {
  /// States in host memory, parameters on the device: they pass through kUpdateBlocks host buffers
  /// of this many bytes. 0 if none are needed.
  int64_t host_block = 0;
  /// States on the device, the rest not: copies on the device at a time.
  int64_t device = 0;
};
inline constexpr int64_t kUpdateBlocks = 2;
UpdateCopies update_copies(const layout::FlatPlan& plan, const dsconfig::ResolvedConfig& config,
                           int world);
/// Whether a flat's fp32 master is the first of the optimizer's vectors. If not, the working copy
/// or the parameter shard is the master.
bool separate_master(const dsconfig::ResolvedConfig& config);
/// The type of the optimizer's vectors. A separate master is fp32, and the states with it.
dsconfig::Precision vector_type(const dsconfig::ResolvedConfig& config);
inline int64_t bytes_of(dsconfig::Precision precision) {
  return precision == dsconfig::Precision::Fp32 ? 4 : 2;
}
/// Elements that an update widens to fp32 at a time if masters or states have 16 bits.
inline constexpr int64_t kWidenedPiece = 1 << 20;
/// The most bytes of these. 0 if masters are fp32.
int64_t update_scratch(const layout::FlatPlan& plan, const dsconfig::ResolvedConfig& config,
                       int world);
/// The optimizer's states of a flat; none if it is frozen. None for 8-bit AdamW, which keeps its
/// moments itself (eight_bit_plan.h).
std::vector<dsconfig::StateSpec> states_of_flat(const layout::FlatLayout& flat,
                                                const dsconfig::ResolvedConfig& config);
/// The number of vectors that the optimizer keeps for a flat, with a separate master; 0 if frozen.
int optimizer_vectors(const layout::FlatLayout& flat, const dsconfig::ResolvedConfig& config);

layout::ScheduleLimits schedule_limits(const dsconfig::ResolvedConfig& config, int world);

}  // namespace dsj::plan

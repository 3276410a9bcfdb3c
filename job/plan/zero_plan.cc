#include "job/plan/zero_plan.h"

#include <algorithm>

#include "job/plan/eight_bit_plan.h"
#include "job/plan/muon_plan.h"
#include "job/plan/safe_modules.h"
#include "job/wire_blocks.h"

namespace dsj::plan {

using dsconfig::OffloadDevice;
using dsconfig::Precision;
using dsconfig::ResolvedConfig;

layout::FlatPlan plan_flats(const std::vector<layout::UnitSpec>& units,
                            const ResolvedConfig& config, int world) {
  const dsconfig::ZeroConfig& zero = config.zero;
  const layout::Stage& stage = effective_stage(config, world);
  layout::FlatPlanOptions options{
      .shard_world = stage.shards_update() ? rank_groups(config, world).shards : 1,
      .chunk_limit = zero.reduce_bucket_size};
  // Updated parameters are gathered in the chunks in which gradients are reduced: the smaller
  // bucket limits both.
  if (stage.gathered == layout::Gathered::AfterUpdate)
    options.chunk_limit = std::min(options.chunk_limit, zero.allgather_bucket_size);
  options.chunk_limit = std::max<int64_t>(options.chunk_limit, 1);
  if (stage.shards_parameters()) {
    options.persistence_threshold = zero.param_persistence_threshold;
    options.model_persistence_threshold = zero.model_persistence_threshold;
  }
  if (config.optimizer.eight_bit) options.align = kEightBitBlock;
  if (stage.shards_parameters() &&
      (zero.quantized_weights || zero.quantized_frozen_weights || zero.quantized_gradients)) {
    static_assert(wire::kWireBlock % kEightBitBlock == 0);
    options.align = options.frozen_align = wire::kWireBlock;
    // As in DeepSpeed, only tensors of two or more dimensions are quantized.
    options.whole = [](const layout::Parameter& one) { return one.shape.size() < 2; };
  }
  if (is_muon(config))
    options.alone = [](const layout::Parameter& one) { return is_orthogonalised(one); };
  else if (config.autocast.on() && stage.shards_update())
    options.alone = [&config, tied = is_tied(units)](const layout::Parameter& one) {
      return is_safe(one.name, tied, config);
    };
  return layout::plan_flats(units, options);
}

bool keeps_codes(const layout::FlatLayout& flat, const layout::Stage& stage,
                 const ResolvedConfig& config) {
  return config.zero.quantized_frozen_weights && flat.frozen() && stage.shards_parameters() &&
         flat.packing() == layout::Packing::None;
}

bool gathers_codes(const layout::FlatLayout& flat, const layout::Stage& stage,
                   const ResolvedConfig& config) {
  return keeps_codes(flat, stage, config) ||
         (config.zero.quantized_weights && stage.shards_parameters());
}

bool separate_master(const ResolvedConfig& config) {
  return config.precision != Precision::Fp32 && config.master_dtype == Precision::Fp32;
}

Precision vector_type(const ResolvedConfig& config) {
  return config.state_dtype;
}

int64_t update_scratch(const layout::FlatPlan& plan, const ResolvedConfig& config, int world) {
  if (config.master_dtype == Precision::Fp32) return 0;
  int64_t most = 0;
  for (const auto& flat : plan.flats) {
    const auto states = static_cast<int64_t>(states_of_flat(flat, config).size());
    const int64_t vectors = 1 + (config.state_dtype == Precision::Fp32 ? 0 : states);
    const int64_t own =
        effective_stage(config, world).shards_update() ? flat.shard_numel() : flat.numel();
    if (!flat.frozen()) most = std::max(most, 4 * vectors * std::min(own, kWidenedPiece));
  }
  return most;
}

UpdateCopies update_copies(const layout::FlatPlan& plan, const ResolvedConfig& config, int world) {
  if (config.master_dtype != Precision::Fp32) return {};  // these are updated piece by piece
  const layout::OffloadPlan offload = plan_offload(plan, config, world);
  const int64_t parameter = separate_master(config) ? bytes_of(config.precision) : 4;
  UpdateCopies most;
  for (int i = 0; i < static_cast<int>(plan.flats.size()); ++i) {
    const auto& own = offload.parameters[i];
    const bool away = !own.empty() && own.front().place != layout::Place::Device;
    const int64_t element =
        (away ? parameter : 0) + (offload.states_leave(i) ? bytes_of(config.grad_accum_dtype) : 0);
    for (const layout::Part& part : offload.optimizer[i]) {
      for (const layout::Chunk& chunk : plan.flats[i].chunks()) {
        const int64_t from = std::max(part.begin, chunk.shard_offset),
                      to = std::min(part.begin + part.numel, chunk.shard_offset + chunk.slice);
        if (part.place == layout::Place::Device)
          most.device = std::max(most.device, (to - from) * element);
        else if (!away)
          most.host_block = std::max(most.host_block, (to - from) * parameter);
      }
    }
  }
  return most;
}

std::vector<dsconfig::StateSpec> states_of_flat(const layout::FlatLayout& flat,
                                                const ResolvedConfig& config) {
  if (flat.frozen() || config.optimizer.eight_bit) return {};
  return is_orthogonalised(flat, config) ? dsconfig::matrix_states()
                                         : dsconfig::states_of(config.optimizer);
}

int optimizer_vectors(const layout::FlatLayout& flat, const ResolvedConfig& config) {
  return flat.frozen()
             ? 0
             : static_cast<int>(states_of_flat(flat, config).size()) + separate_master(config);
}

namespace {

layout::Place place_of(OffloadDevice device) {
  switch (device) {
    case OffloadDevice::Cpu:
      return layout::Place::Host;
    case OffloadDevice::Nvme:
      return layout::Place::File;
    case OffloadDevice::None:
      break;
  }
  return layout::Place::Device;
}

}  // namespace

layout::OffloadPlan plan_offload(const layout::FlatPlan& plan, const ResolvedConfig& config,
                                 int world) {
  const dsconfig::Offload& offload = config.offload;
  const layout::Stage& stage = effective_stage(config, world);
  layout::OffloadInput input;
  input.optimizer_bytes = bytes_of(vector_type(config));
  int64_t largest = 0;
  for (int i = 0; i < static_cast<int>(plan.flats.size()); ++i) {
    const int64_t shard = plan.flats[i].shard_numel();
    const layout::Stage& of_flat = layout::stage_of_flat(stage, plan.is_persisted(i));
    const bool kept = of_flat.shards_parameters() && !keeps_codes(plan.flats[i], of_flat, config);
    largest = std::max(largest, shard);
    input.flats.push_back(
        {.shard_numel = shard,
         .optimizer_vectors = optimizer_vectors(plan.flats[i], config),
         .parameter_bytes = kept ? static_cast<int>(bytes_of(config.precision)) : 0});
  }
  // A buffer is one vector of sub_group_size elements, and at most the largest shard.
  const dsconfig::OffloadOptimizer& o = offload.optimizer;
  input.optimizer = {.place = place_of(o.device),
                     .ratio = o.ratio,
                     .staging = o.buffer_count * std::min(offload.sub_group_size, largest),
                     .tiles_at_once = 1 + o.pipeline_read + o.pipeline_write};
  const dsconfig::OffloadParam& p = offload.param;
  input.parameters = {.place = place_of(p.device),
                      .host_first = p.max_in_cpu,
                      .staging = p.buffer_count * std::min(p.buffer_size, largest),
                      .tiles_at_once = std::max<int64_t>(p.buffer_count, 1)};
  return layout::plan_offload(input);
}

layout::ScheduleLimits schedule_limits(const ResolvedConfig& config, int world) {
  return {.sharded_parameters = effective_stage(config, world).shards_parameters(),
          .prefetch = config.zero.prefetch_bucket_size,
          .max_live = config.zero.max_live_parameters,
          .max_reuse_distance = config.zero.max_reuse_distance};
}

}  // namespace dsj::plan

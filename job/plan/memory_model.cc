#include "job/plan/memory_model.h"

#include <algorithm>
#include <numeric>

#include "job/dsconfig/config/one_bit_steps.h"
#include "job/layout/packing.h"
#include "job/plan/activation_model.h"
#include "job/plan/autocast_plan.h"
#include "job/plan/eight_bit_plan.h"
#include "job/plan/muon_plan.h"
#include "job/plan/one_bit_plan.h"
#include "job/plan/rank_groups.h"
#include "job/plan/step_walk.h"
#include "job/plan/zero_plan.h"
#include "job/wire_blocks.h"

namespace dsj::plan {
namespace {

using dsconfig::Precision;
using layout::Action;

/// Adds what this rank owns of a flat: master, states and, if parameters are sharded, the shard
/// that is gathered from, which in fp32 is the master.
void count_owned(const layout::OffloadPlan& plan, const layout::FlatLayout& layout, int flat,
                 const dsconfig::ResolvedConfig& config, StepWalk& walk, HostClasses& host) {
  const int64_t vectors = optimizer_vectors(layout, config) * bytes_of(vector_type(config));
  const int64_t compute = bytes_of(config.precision);
  for (const layout::Part& part : plan.optimizer[flat]) {
    if (part.place == layout::Place::Device) walk.optimizer.add(part.numel * vectors);
    if (part.place == layout::Place::Host) host.optimizer += part.numel * vectors;
  }
  for (const layout::Part& part : plan.parameters[flat]) {
    const bool is_master = !separate_master(config) && !layout.frozen();
    auto& device = is_master ? walk.optimizer : walk.parameters;
    if (part.place == layout::Place::Device) device.add(part.numel * compute);
    if (part.place == layout::Place::Host) host.parameters += part.numel * compute;
  }
}

/// Steps of a 1-bit optimizer that leave gradients on their ranks: raises peaks above those of
/// earlier steps. `walk`: includes what the rank keeps.
void add_compressed_steps(const MemoryInput& input, const layout::FlatPlan& plan,
                          const OneBitPlan& one_bit, StepWalk& walk, MemoryModel& model,
                          const layout::Schedule& schedule) {
  for (const Action& action : schedule.actions) walk.visit(action);
  walk.finish();
  walk.update(one_bit_scratch(one_bit, plan, input.world));
  const auto raise = [](int64_t& bytes, const Gauge& gauge) {
    bytes = std::max(bytes, gauge.peak);
  };
  raise(model.bytes.parameters, walk.parameters);
  raise(model.bytes.gradients, walk.gradients);
  raise(model.bytes.optimizer, walk.optimizer);
  raise(model.bytes.buckets, walk.buckets);
  raise(model.bytes.activations, walk.activations);
  raise(model.bytes.peak, walk.all);
}

/// The bytes that a rank sends in a compressed step.
void count_compressed_wire(const MemoryInput& input, const OneBitPlan& one_bit, WireCount& wire) {
  if (input.world == 1) return;
  wire.momentum_elements = 2 * (input.world - 1) * one_bit.server_elements();
  wire.momentum_bytes = one_bit.wire_bytes(input.world);
  if (has_local_steps(input.config)) return;
  wire.later_parameter_elements = wire.parameter_elements;
  wire.later_parameter_bytes = wire.parameter_bytes;
}

/// Bytes of states that other ranks own: each rank gets them for ZeroOneAdam's local steps.
int64_t others_states(const layout::FlatPlan& plan, const dsconfig::ResolvedConfig& config) {
  int64_t bytes = 0;
  for (const auto& flat : plan.flats)
    if (!flat.frozen())
      bytes += (flat.numel() - flat.shard_numel()) * optimizer_vectors(flat, config) *
               bytes_of(vector_type(config));
  return bytes;
}

/// The offloaded inputs of layers (engine/zero/storage/layer_inputs.h): all in host memory, or in a file
/// with two of them in memory.
void count_inputs(const MemoryInput& input, MemoryModel& model) {
  if (!input.inputs_leave()) return;
  const int64_t layers = input.model.num_layers, align = layout::kFileAlign;
  const int64_t one = activation_model(input).boundary;
  const auto place = [&](int64_t bytes) { return (bytes + align - 1) / align * align; };
  if (input.accelerator) {
    model.host.inputs = layers * one;
    return;
  }
  model.host.inputs = std::min<int64_t>(2, layers) * (place(one) + align);
  const MicroBatchTokens all{input.config.micro_batch_size * input.tokens_per_row};
  const int64_t longest = part_of(all, input.config.sequence_parallel_size).tokens *
                          input.model.hidden_size * bytes_of(input.config.precision);
  model.bytes.nvme += layers * place(longest);
}

/// Bytes per element of a gathered copy.
int64_t gathered_bytes(const std::vector<layout::UnitSpec>& units, const layout::FlatLayout& flat,
                       const MemoryInput& input) {
  return bytes_of(types_of_flat(units, flat, input.config, input.world).gathered);
}

/// Counts stage 3's gathers, within a group or over all ranks.
class Gathers {
 public:
  Gathers(const MemoryInput& input, const std::vector<layout::UnitSpec>& units,
          const layout::FlatPlan& plan)
      : input_(input), units_(units), plan_(plan), groups_(rank_groups(input.config, input.world)) {
    // Frozen flats keep their second copy from the run's first gather on.
    for (const auto& flat : plan.flats) second_.push_back(groups_.near > 0 && flat.frozen());
  }

  void count(int flat, WireCount& wire) {
    const layout::FlatLayout& layout = plan_.flats[flat];
    const bool near = second_[flat];
    const int64_t ranks = near ? groups_.near : groups_.shards;
    const int64_t elements = layout.numel() / ranks * (ranks - 1);
    const layout::Stage& stage = layout::stage_of_flat(effective_stage(input_.config, input_.world),
                                                       plan_.is_persisted(flat));
    const int64_t bytes =
        !near && gathers_codes(layout, stage, input_.config)
            ? (ranks - 1) * wire::message_bytes(layout.shard_numel(), wire::kWeightBits)
            : elements * gathered_bytes(units_, layout, input_);
    wire.parameter_elements += elements;
    wire.parameter_bytes += bytes;
    if (near) wire.near_parameter_bytes += bytes;
    second_[flat] = groups_.near > 0;
  }

 private:
  const MemoryInput& input_;
  const std::vector<layout::UnitSpec>& units_;
  const layout::FlatPlan& plan_;
  const RankGroups groups_;
  std::vector<bool> second_;  ///< [flat]: the group holds a current second copy (hpZ)
};

/// Counts what attention sends in a step if ranks share rows: queries, keys and values, then
/// results, and their gradients. Recompute repeats the first two.
void count_heads(const MemoryInput& input, const layout::Schedule& schedule, WireCount& wire) {
  const int64_t ranks = input.config.sequence_parallel_size;
  if (ranks == 1) return;
  const layout::ModelConfig& model = input.model;
  const int64_t tokens = part_of(micro_batch_tokens(input), ranks).tokens;
  const layout::LayerKinds kinds = model.layer_kinds();
  std::vector<int64_t> once;  // [kind]
  for (const int64_t layer : kinds.first) {
    const layout::ModelConfig of = model.of_layer(layer);
    const int64_t keys = std::lcm(of.num_kv_heads, ranks) * of.head_dim;
    once.push_back(tokens * (2 * of.query_size() + 2 * keys) / ranks * (ranks - 1));
  }
  for (const Action& action : schedule.actions) {
    if (action.unit == 0 || action.unit > model.num_layers) continue;
    const int64_t one = once[static_cast<size_t>(kinds.of[action.unit - 1])];
    if (action.kind == Action::Kind::Forward) wire.head_elements += one;
    if (action.kind == Action::Kind::Backward)
      wire.head_elements += (input.recompute ? 2 : 1) * one;
  }
  wire.head_bytes = wire.head_elements * bytes_of(product_type(input.config));
}

int64_t buffer_numel(const std::vector<layout::UnitSpec>& units) {
  int64_t total = 0;
  for (const auto& unit : units)
    for (const auto& buffer : unit.buffers) total += buffer.numel();
  return total;
}

/// Adds what this rank keeps between two steps.
void count_kept(const MemoryInput& input, const layout::FlatPlan& plan, const layout::Stage& stage,
                const layout::OffloadPlan& offload, const std::vector<layout::UnitSpec>& units,
                StepWalk& walk, HostClasses& host) {
  const int near = rank_groups(input.config, input.world).near;
  for (int i = 0; i < static_cast<int>(plan.flats.size()); ++i) {
    const layout::FlatLayout& flat = plan.flats[i];
    if (input.accelerator && offload.states_leave(i))
      host.gradients += flat.shard_numel() * bytes_of(input.config.grad_accum_dtype);
    const layout::Stage& of_flat = layout::stage_of_flat(stage, plan.is_persisted(i));
    if (keeps_codes(flat, of_flat, input.config))
      walk.parameters.add(wire::message_bytes(flat.shard_numel(), wire::kWeightBits));
    if (!of_flat.shards_parameters())
      walk.parameters.add(layout::whole_bytes(flat, bytes_of(input.config.precision)));
    else if (near > 0)
      walk.parameters.add(flat.numel() / near * gathered_bytes(units, flat, input));
    count_owned(offload, flat, i, input.config, walk, host);
  }
  walk.optimizer.add(eight_bit_bytes(plan, input.config));
  walk.parameters.add(4 * buffer_numel(units));
}

}  // namespace

MemoryModel memory_model(const MemoryInput& input) {
  const layout::Stage& stage = effective_stage(input.config, input.world);
  const auto units = layout::units_of(input.model, input.lora);
  const layout::FlatPlan plan = plan_flats(units, input.config, input.world);
  const layout::Schedule schedule =
      layout::make_schedule(units, plan, schedule_limits(input.config, input.world),
                            input.config.gradient_accumulation_steps);
  MemoryModel model{.parameters = layout::total_numel(units),
                    .trainable = layout::trainable_numel(units),
                    .active = layout::active_numel(input.model, units),
                    .peak_live_parameters = schedule.peak_live,
                    .gathers = schedule.gathers,
                    .stage = stage.number};
  const int64_t compute = bytes_of(input.config.precision);
  const layout::OffloadPlan offload = plan_offload(plan, input.config, input.world);
  model.host.buffers = offload.staging_bytes();
  model.bytes.nvme = offload.optimizer_file_bytes + offload.parameter_file_bytes;
  count_inputs(input, model);
  const int64_t others = rank_groups(input.config, input.world).shards - 1;
  model.parameter_file = offload.parameter_file_bytes;
  const UpdateCopies copies =
      input.accelerator ? update_copies(plan, input.config, input.world) : UpdateCopies{};
  model.host.buffers += kUpdateBlocks * copies.host_block;
  const auto count = [&](int64_t elements, int64_t type) {
    model.wire.parameter_elements += elements;
    model.wire.parameter_bytes += elements * type;
  };
  StepWalk walk(input, units, plan, stage, schedule);
  count_kept(input, plan, stage, offload, units, walk, model.host);
  for (int i = 0; i < static_cast<int>(plan.flats.size()); ++i) {
    const layout::FlatLayout& flat = plan.flats[i];
    const layout::Stage& of_flat = layout::stage_of_flat(stage, plan.is_persisted(i));
    if (flat.packing() != layout::Packing::None) {
      const auto packed = layout::packed_bytes(flat);
      model.packed_codes += packed.codes;
      model.packed_scales += packed.scales;
    }
    if (flat.frozen()) continue;  // loaded once, never updated
    if (of_flat.gathered == layout::Gathered::AfterUpdate)
      count(flat.shard_numel() * others, compute);
  }

  count_heads(input, schedule, model.wire);
  Gathers gathers(input, units, plan);
  for (const Action& action : schedule.actions) {
    walk.visit(action);
    if (action.kind == Action::Kind::Gather) gathers.count(action.flat, model.wire);
  }
  walk.finish();
  walk.update(muon_scratch(plan, input.config) + update_scratch(plan, input.config, input.world) +
              eight_bit_scratch(plan, input.config, input.accelerator) + copies.device);
  model.wire.matrix_elements = muon_elements(plan, input.config);
  model.wire.matrix_bytes = 4 * model.wire.matrix_elements;
  model.bytes = {.parameters = walk.parameters.peak,
                 .gradients = walk.gradients.peak,
                 .optimizer = walk.optimizer.peak,
                 .buckets = walk.buckets.peak,
                 .activations = walk.activations.peak,
                 .peak = walk.all.peak,
                 .host = model.host.all(),
                 .nvme = model.bytes.nvme};
  model.wire.gradient_elements = walk.reduced_elements;
  model.wire.gradient_bytes = walk.reduced_bytes;
  model.wire.gradient_bytes_over_groups = walk.bytes_over_groups;
  model.wire.near_gradient_bytes = walk.near_bytes;
  model.wire.exchanged_gradient_bytes = walk.exchanged_bytes;
  if (!keeps_gradients_local(input.config, input.world)) return model;
  const OneBitPlan one_bit = one_bit_plan(units, plan, input.config, input.world);
  for (const bool local : {false, true}) {
    if (local && !has_local_steps(input.config)) continue;
    StepWalk after(input, units, plan, stage, schedule, true);
    HostClasses counted_already;
    count_kept(input, plan, stage, offload, units, after, counted_already);
    after.optimizer.add(4 * one_bit_elements(one_bit, plan, input.config, input.world));
    if (local) after.optimizer.add(4 * local_elements(plan) + others_states(plan, input.config));
    add_compressed_steps(input, plan, one_bit, after, model, schedule);
  }
  count_compressed_wire(input, one_bit, model.wire);
  return model;
}

int64_t elements_apart(const MemoryInput& input) {
  if (!keeps_gradients_local(input.config, input.world)) return 0;
  const auto units = layout::units_of(input.model, input.lora);
  const auto plan = plan_flats(units, input.config, input.world);
  const auto one_bit = one_bit_plan(units, plan, input.config, input.world);
  const int64_t own = one_bit_elements(one_bit, plan, input.config, input.world);
  if (!has_local_steps(input.config)) return own;
  // Between two synchronizations of ZeroOneAdam also the ranks' masters and momenta.
  return own + local_elements(plan) + 2 * layout::trainable_numel(units);
}

DiskUse disk_use(const MemoryInput& input) {
  const auto units = layout::units_of(input.model, input.lora);
  // fp32 master and states of trained parameters. Frozen parameters are not saved again.
  int64_t saved = elements_apart(input) * input.world;
  for (const auto& flat : plan_flats(units, input.config, 1).flats) {
    const auto states = static_cast<int64_t>(states_of_flat(flat, input.config).size());
    if (!flat.frozen())
      saved += flat.parameter_numel() * (1 + states) + eight_bit_saved(flat, input.config);
  }
  // With LoRA, only adapters are exported.
  const bool adapts = input.lora && input.lora->adapts();
  const int64_t exported = adapts ? layout::trainable_numel(units) : layout::total_numel(units);
  return {.checkpoint = 4 * saved, .model = exported * bytes_of(input.config.precision)};
}

DeepSpeedEstimate deepspeed_estimate(const MemoryInput& input) {
  const auto units = layout::units_of(input.model);
  const int64_t all = layout::total_numel(units), world = input.world;
  int64_t largest = 0;
  for (const auto& unit : units)
    for (const auto& parameter : unit.parameters) largest = std::max(largest, parameter.numel());
  const dsconfig::ZeroConfig& zero = input.config.zero;
  DeepSpeedEstimate estimate;
  switch (zero.stage) {
    case 0:  // no formula
      break;
    case 3:
      estimate.model_states = 18 * all / world + 4 * largest;
      break;
    default:
      estimate.model_states = 4 * all + 16 * all / world;
  }
  if (zero.overlap_comm) {
    const double buckets = 4.5 * 2 *
                           (static_cast<double>(zero.reduce_bucket_size) +
                            static_cast<double>(zero.allgather_bucket_size));
    estimate.overlap_buckets = static_cast<int64_t>(std::min(buckets, 9e18));
  }
  return estimate;
}

}  // namespace dsj::plan

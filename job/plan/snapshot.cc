#include "job/plan/snapshot.h"

#include "job/plan/eight_bit_plan.h"
#include "job/plan/memory_model.h"
#include "job/plan/zero_plan.h"

namespace dsj::plan {
namespace {

/// Further numbers that a rank saves: which ranks' errors the checkpoint has, and their rate.
constexpr int64_t kMarkers = 2;

/// Whether a save is due at a step other than the last. The run waits for its last save.
bool saves_between_steps(const dsconfig::ResolvedConfig& config) {
  using enum dsconfig::Cadence::Kind;
  const bool endless = config.total_steps <= 0;  // unknown length: assume that it goes on
  switch (config.save.kind) {
    case Never:
      return config.eval.best.save;
    case Steps:
      return endless || config.save.every < config.total_steps;
    case Epoch:
      return endless || config.steps_per_epoch < config.total_steps;
  }
  return true;
}

/// Elements of a flat that one rank saves: what it updates, or its share of what all ranks update.
int64_t saved_elements(const layout::FlatLayout& flat, const layout::Stage& stage, int world) {
  if (stage.shards_update()) return flat.shard_numel();
  std::vector<layout::Parameter> parameters;
  for (const auto& slot : flat.slots()) parameters.push_back({slot.name, slot.shape});
  return layout::FlatLayout(flat.name(), parameters, world, flat.numel()).shard_numel();
}

/// Numbers of 8-bit AdamW's moments that one rank saves: a share, rounded up to whole blocks.
int64_t eight_bit_share(const layout::FlatLayout& flat, const dsconfig::ResolvedConfig& config,
                        int world) {
  const int64_t all = eight_bit_saved(flat, config);
  return all == 0 ? 0 : (all + world - 1) / world + 2 * (kEightBitBlock + 1);
}

}  // namespace

Snapshot plan_snapshot(const FitInput& input, const Limits& limits) {
  const dsconfig::ResolvedConfig& config = input.memory.config;
  const int world = input.memory.world;
  Snapshot snapshot;
  if (!saves_between_steps(config)) return snapshot;
  const auto units = layout::units_of(input.memory.model, input.memory.lora);
  for (const auto& flat : plan_flats(units, config, world).flats) {
    if (flat.frozen()) continue;
    const auto states = 1 + static_cast<int64_t>(states_of_flat(flat, config).size());
    snapshot.bytes += 4 * states * saved_elements(flat, effective_stage(config, world), world);
    snapshot.bytes += 4 * eight_bit_share(flat, config, rank_groups(config, world).shards);
  }
  if (const int64_t apart = elements_apart(input.memory); apart > 0)
    snapshot.bytes += 4 * (apart + kMarkers);
  if (!limits.host.bytes) return snapshot;
  const MemoryClasses bytes = memory_model(input.memory).bytes;
  const int64_t others =
      bytes.host + (input.memory.accelerator || limits.device.bytes ? 0 : bytes.peak);
  snapshot.fits = static_cast<double>(others + snapshot.bytes) * input.ranks_per_host <=
                  static_cast<double>(*limits.host.bytes);
  return snapshot;
}

}  // namespace dsj::plan

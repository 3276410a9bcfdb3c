#include "engine/zero/storage/offload_tier.h"

#include <ATen/ATen.h>

#include <utility>

#include "engine/zero/storage/scalar_type.h"
#include "engine/zero/storage/storage_error.h"
#include "job/plan/zero_plan.h"

namespace dsj::zero {
namespace {

using layout::Part;
using layout::Place;

constexpr char kOptimizerKey[] = "zero_optimization.offload_optimizer.nvme_path";
constexpr char kParameterKey[] = "zero_optimization.offload_param.nvme_path";

int files_before(const std::vector<std::vector<Part>>& parts, int index) {
  int count = 0;
  for (int i = 0; i < index; ++i)
    for (const Part& part : parts[i]) count += part.place == Place::File;
  return count;
}

}  // namespace

OffloadTier::OffloadTier(const dsconfig::ResolvedConfig& config, const layout::FlatPlan& flats,
                         int world, int rank, at::Device device, const OffloadHost& host)
    : offload_(config.offload),
      plan_(plan::plan_offload(flats, config, world)),
      rank_(rank),
      device_(device),
      compute_(scalar_type(config.precision)),
      vectors_(scalar_type(plan::vector_type(config))),
      separate_master_(plan::separate_master(config)) {
  std::vector<int64_t> vectors;
  for (const auto& flat : flats.flats) {
    frozen_.push_back(flat.frozen());
    states_.push_back(plan::states_of_flat(flat, config));
    vectors.push_back(plan::optimizer_vectors(flat, config));
  }
  const auto& o = offload_.optimizer;
  const auto& p = offload_.param;
  if (offload_.any() && (o.pin_memory || p.pin_memory) && device.is_cpu())
    say(host,
        "pin_memory has no effect without an accelerator: host memory stays "
        "pageable");
  if (plan_.optimizer_file_bytes > 0) {
    optimizer_ =
        open("optimizer", o.nvme_path, plan_.optimizer, vectors, plan_.optimizer_file_bytes,
             {.slots = plan_.optimizer_tiles,
              .slot_bytes = plan_.optimizer_tile_bytes,
              .read_ahead = o.pipeline_read,
              .write_behind = o.pipeline_write,
              .pinned_for = o.pin_memory ? device : at::Device(at::kCPU),
              .key = kOptimizerKey},
             host);
  }
  if (plan_.parameter_file_bytes > 0) {
    parameters_ = open("parameters", p.nvme_path, plan_.parameters,
                       std::vector<int64_t>(flats.flats.size(), 1), plan_.parameter_file_bytes,
                       {.slots = plan_.parameter_tiles,
                        .slot_bytes = plan_.parameter_tile_bytes,
                        .pinned_for = p.pin_memory ? device : at::Device(at::kCPU),
                        .key = kParameterKey},
                       host);
  }
}

void OffloadTier::say(const OffloadHost& host, const std::string& text) const {
  if (host.note && rank_ == 0) host.note(text);
}

aio::Scratch& OffloadTier::scratch(const std::string& root, const std::string& key,
                                   const OffloadHost& host) {
  auto& scratch = scratch_[root];
  if (!scratch) {
    scratch = value_or_throw(
        aio::Scratch::make(root, {.job = host.job, .attempt = host.attempt, .rank = rank_}, key));
    for (const auto& note : scratch->notes())
      if (host.note) host.note(note);
    for (const auto& warning : scratch->warnings())
      if (host.warn) host.warn(warning);
  }
  return *scratch;
}

std::shared_ptr<TileCache> OffloadTier::open(const std::string& name, const std::string& root,
                                             const std::vector<std::vector<Part>>& parts,
                                             const std::vector<int64_t>& vectors, int64_t bytes,
                                             TileCacheOptions options, const OffloadHost& host) {
  std::vector<TileSpec> tiles;
  const int64_t element =
      static_cast<int64_t>(c10::elementSize(name == "optimizer" ? vectors_ : compute_));
  for (size_t flat = 0; flat < parts.size(); ++flat)
    for (const Part& part : parts[flat])
      if (part.place == Place::File)
        tiles.push_back({part.file_offset, layout::file_bytes(part.numel, vectors[flat], element)});
  if (host.open) {
    return std::make_shared<TileCache>(value_or_throw(host.open(name, bytes)), std::move(tiles),
                                       options);
  }
  const auto& aio = offload_.aio;
  auto created = value_or_throw(scratch(root, options.key, host)
                                    .create(name + ".swap", bytes,
                                            {.block_size = aio.block_size,
                                             .queue_depth = static_cast<int>(aio.queue_depth),
                                             .thread_count = static_cast<int>(aio.thread_count),
                                             .single_submit = aio.single_submit,
                                             .overlap_events = aio.overlap_events}));
  std::string text = name + " on NVMe: " + std::to_string(bytes) + " bytes per rank under " + root +
                     " by " + created.file->implementation();
  for (const auto& reason : created.passed_over) text += "; not " + reason;
  say(host, text);
  return std::make_shared<TileCache>(std::move(created.file), std::move(tiles), options);
}

ShardStoreOptions OffloadTier::optimizer(int index) const {
  if (plan_.optimizer[index].empty()) return {};
  ShardStoreOptions options{.parts = plan_.optimizer[index],
                            .type = vectors_,
                            .device = device_,
                            .on_device = memory::Class::Optimizer,
                            .pinned = offload_.optimizer.pin_memory && !device_.is_cpu(),
                            .tiles = optimizer_,
                            .first_tile = files_before(plan_.optimizer, index)};
  if (separate_master_) options.initial.push_back(0);
  for (const auto& state : states_[static_cast<size_t>(index)])
    options.initial.push_back(state.initial);
  return options;
}

ShardStoreOptions OffloadTier::parameters(int index) const {
  // With fp32 parameters the shard is the master.
  const auto on_device =
      separate_master_ || frozen_[index] ? memory::Class::Parameters : memory::Class::Optimizer;
  return {.parts = plan_.parameters[index],
          .initial = {0.0},
          .type = compute_,
          .device = device_,
          .on_device = on_device,
          .pinned = offload_.param.pin_memory && !device_.is_cpu(),
          .tiles = parameters_,
          .first_tile = files_before(plan_.parameters, index)};
}

}  // namespace dsj::zero

#include "common/layout/partition.h"

#include <algorithm>

#include "common/check.h"

namespace dsj::layout {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

FlatLayout::FlatLayout(std::string name, const std::vector<Parameter>& parameters, int world,
                       int64_t chunk_limit)
    : name_(std::move(name)), world_(world) {
  DSJ_CHECK(world > 0 && chunk_limit > 0 && !parameters.empty());
  int64_t end = 0;
  for (const auto& parameter : parameters) {
    const int64_t numel = parameter.numel(), aligned = round_up(end + numel, kAlign);
    slots_.push_back({parameter.name, parameter.shape, end, numel});
    parameter_numel_ += numel;
    if (aligned > end + numel) gaps_.push_back({end + numel, aligned - end - numel});
    end = aligned;
  }
  // Chunks of equal size rather than full ones and a rest: every collective moves as much.
  const int64_t unit = world * kAlign;
  const int64_t limit = std::max(chunk_limit / unit * unit, unit);
  const int64_t count = (end + limit - 1) / limit;
  const int64_t size = round_up((end + count - 1) / count, unit);
  for (int64_t offset = 0; offset < end; offset += size) {
    const int64_t numel = round_up(std::min(size, end - offset), unit);
    chunks_.push_back({offset, numel, numel / world, numel_ / world});
    numel_ += numel;
  }
  if (numel_ > end) gaps_.push_back({end, numel_ - end});
}

std::vector<Range> FlatLayout::ranges(int rank) const {
  std::vector<Range> ranges;
  for (const auto& chunk : chunks_) {
    const int64_t begin = chunk.offset + rank * chunk.slice, end = begin + chunk.slice;
    auto slot = std::ranges::upper_bound(slots_, begin, {}, &Slot::offset);
    if (slot != slots_.begin()) --slot;
    for (; slot != slots_.end() && slot->offset < end; ++slot) {
      const int64_t from = std::max(begin, slot->offset);
      const int64_t to = std::min(end, slot->offset + slot->numel);
      if (from >= to) continue;
      ranges.push_back({slot - slots_.begin(), from - slot->offset, to - from,
                        chunk.shard_offset + from - begin, from});
    }
  }
  return ranges;
}

FlatPlan plan_flats(const std::vector<UnitSpec>& units, const FlatPlanOptions& options) {
  FlatPlan plan;
  std::vector<Parameter> persisted;
  int64_t persisted_numel = 0;
  for (const auto& unit : units) {
    std::vector<Parameter> own;
    std::vector<FlatPlan::Place> places;
    for (const auto& parameter : unit.parameters) {
      const int64_t numel = parameter.numel();
      const bool keep = numel <= options.persistence_threshold &&
                        persisted_numel + numel <= options.model_persistence_threshold;
      auto& list = keep ? persisted : own;
      if (keep) persisted_numel += numel;
      places.push_back(
          {keep ? -1 : static_cast<int>(plan.flats.size()), static_cast<int>(list.size())});
      list.push_back(parameter);
    }
    plan.places.push_back(std::move(places));
    plan.unit_flat.push_back(own.empty() ? -1 : static_cast<int>(plan.flats.size()));
    if (!own.empty()) {
      plan.flats.emplace_back(unit.name, own, options.shard_world, options.chunk_limit);
    }
  }
  if (persisted.empty()) return plan;
  plan.persisted = static_cast<int>(plan.flats.size());
  plan.flats.emplace_back("persisted", persisted, options.shard_world, options.chunk_limit);
  for (auto& places : plan.places) {
    for (auto& place : places) {
      if (place.flat < 0) place.flat = plan.persisted;
    }
  }
  return plan;
}

}  // namespace dsj::layout

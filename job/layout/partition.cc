#include "job/layout/partition.h"

#include <algorithm>

#include "common/check.h"

namespace dsj::layout {
FlatLayout::FlatLayout(std::string name, const std::vector<Parameter>& parameters, int world,
                       int64_t chunk_limit, int64_t align)
    : name_(std::move(name)), world_(world) {
  DSJ_CHECK(world > 0 && chunk_limit > 0 && !parameters.empty() && align % kAlign == 0);
  frozen_ = parameters.front().frozen;
  packing_ = parameters.front().packing;
  DSJ_CHECK(packing_ == Packing::None || (frozen_ && align % kPackedBlock == 0));
  int64_t end = 0;
  for (const auto& parameter : parameters) {
    DSJ_CHECK(parameter.frozen == frozen_ && parameter.packing == packing_, "%s",
              parameter.name.c_str());
    const int64_t numel = parameter.numel(), aligned = round_up(end + numel, align);
    slots_.push_back({parameter.name, parameter.shape, end, numel});
    parameter_numel_ += numel;
    if (aligned > end + numel) gaps_.push_back({end + numel, aligned - end - numel});
    end = aligned;
  }
  // Chunks of equal size instead of full ones and a rest, so that every collective sends the same.
  const int64_t unit = world * align;
  const int64_t limit = std::max(chunk_limit / unit * unit, unit);
  const int64_t count = end / limit + (end % limit != 0);
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
  std::vector<Parameter> persisted[2];  // trained, frozen
  int64_t persisted_numel = 0;
  auto add_flat = [&](std::string name, const std::vector<Parameter>& parameters) {
    if (parameters.empty()) return -1;
    const bool frozen = parameters.front().frozen;
    const bool packed = parameters.front().packing != Packing::None;
    if (frozen) name += packed ? " (packed)" : " (frozen)";
    plan.flats.emplace_back(std::move(name), parameters, options.shard_world, options.chunk_limit,
                            packed   ? kPackedBlock
                            : frozen ? options.frozen_align
                                     : options.align);
    return static_cast<int>(plan.flats.size()) - 1;
  };
  for (const auto& unit : units) {
    std::vector<Parameter> own[2], packed;
    std::vector<FlatPlan::Place> places;
    std::vector<bool> kept;
    const auto alone = [&](const Parameter& parameter) {
      return options.alone != nullptr && options.alone(parameter);
    };
    bool split[2] = {};  // trained, frozen
    for (const auto& parameter : unit.parameters)
      if (alone(parameter)) split[parameter.frozen] = true;
    for (const auto& parameter : unit.parameters) {
      if (parameter.packing != Packing::None) {
        kept.push_back(false);
        places.push_back({-1, static_cast<int>(packed.size())});
        packed.push_back(parameter);
        continue;
      }
      const int64_t numel = parameter.numel();
      const bool small = numel <= options.persistence_threshold &&
                         persisted_numel + numel <= options.model_persistence_threshold;
      const bool whole = options.whole != nullptr && options.whole(parameter);
      const bool keep = whole || (!alone(parameter) && (small || split[parameter.frozen]));
      auto& list = (keep ? persisted : own)[parameter.frozen];
      if (keep) persisted_numel += numel;
      kept.push_back(keep);
      places.push_back({-1, static_cast<int>(list.size())});
      list.push_back(parameter);
    }
    plan.unit_flat.push_back(add_flat(unit.name, own[0]));
    plan.unit_frozen.push_back(add_flat(unit.name, own[1]));
    plan.unit_packed.push_back(add_flat(unit.name, packed));
    for (size_t i = 0; i < places.size(); ++i) {
      if (kept[i]) continue;
      const Parameter& parameter = unit.parameters[i];
      places[i].flat = parameter.packing != Packing::None ? plan.unit_packed.back()
                       : parameter.frozen                 ? plan.unit_frozen.back()
                                                          : plan.unit_flat.back();
    }
    plan.places.push_back(std::move(places));
  }
  plan.persisted = add_flat("persisted", persisted[0]);
  plan.persisted_frozen = add_flat("persisted", persisted[1]);
  for (size_t unit = 0; unit < units.size(); ++unit) {
    for (size_t i = 0; i < plan.places[unit].size(); ++i) {
      auto& place = plan.places[unit][i];
      if (place.flat >= 0) continue;
      place.flat = units[unit].parameters[i].frozen ? plan.persisted_frozen : plan.persisted;
    }
  }
  return plan;
}

}  // namespace dsj::layout

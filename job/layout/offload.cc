#include "job/layout/offload.h"

#include <algorithm>
#include <cmath>

namespace dsj::layout {
namespace {

int64_t tile_of(int64_t elements) {
  return std::max(kTileAlign, elements / kTileAlign * kTileAlign);
}

/// The parts of one flat. `host_left` and `file_end` carry over from flat to flat.
std::vector<Part> cut(const Placement& where, int64_t numel, int64_t vectors, int64_t element,
                      int64_t tile, int64_t& host_left, int64_t& file_end) {
  std::vector<Part> parts;
  if (numel == 0 || vectors == 0) return parts;
  int64_t away = numel;
  if (where.place == Place::Device) away = 0;
  if (where.ratio < 1)
    away = std::min(
        numel,
        round_up(static_cast<int64_t>(std::llround(where.ratio * static_cast<double>(numel))),
                 kAlign));
  int64_t at = 0;
  const auto add = [&](Place place, int64_t end) {
    if (end > at) parts.push_back({place, at, end - at});
    at = std::max(at, end);
  };
  if (where.place == Place::Host) add(Place::Host, away);
  if (where.place == Place::File) {
    const int64_t kept = host_left >= away ? away : host_left / kTileAlign * kTileAlign;
    host_left -= kept;
    add(Place::Host, kept);
    while (at < away) {  // cut at multiples of the tile, both kinds of state alike
      add(Place::File, std::min(away, (at / tile + 1) * tile));
      parts.back().file_offset = file_end;
      file_end += file_bytes(parts.back().numel, vectors, element);
    }
  }
  add(Place::Device, numel);
  return parts;
}

}  // namespace

int64_t file_bytes(int64_t numel, int64_t vectors, int64_t element_bytes) {
  return vectors * round_up(numel * element_bytes, kFileAlign);
}

bool OffloadPlan::states_leave(int flat) const {
  return std::ranges::any_of(optimizer[flat],
                             [](const Part& part) { return part.place != Place::Device; });
}

OffloadPlan plan_offload(const OffloadInput& input) {
  OffloadPlan plan;
  int64_t largest = 0, vectors = 1, element = 0;
  for (const OffloadedFlat& flat : input.flats) {
    largest = std::max(largest, flat.shard_numel);
    vectors = std::max<int64_t>(vectors, flat.optimizer_vectors);
    element = std::max<int64_t>(element, flat.parameter_bytes);
  }
  // Staging has `staging` elements of one vector: all vectors of tiles_at_once tiles.
  int64_t tile = tile_of(round_up(std::max<int64_t>(largest, 1), kTileAlign));
  const bool optimizer_file = input.optimizer.place == Place::File;
  const bool parameter_file = input.parameters.place == Place::File && element > 0;
  if (optimizer_file)
    tile = std::min(tile,
                    tile_of(input.optimizer.staging / (vectors * input.optimizer.tiles_at_once)));
  if (parameter_file)
    tile = std::min(tile, tile_of(input.parameters.staging / input.parameters.tiles_at_once));
  int64_t host_left[2] = {input.optimizer.host_first, input.parameters.host_first};
  for (const OffloadedFlat& flat : input.flats) {
    plan.optimizer.push_back(cut(input.optimizer, flat.shard_numel, flat.optimizer_vectors,
                                 input.optimizer_bytes, tile, host_left[0],
                                 plan.optimizer_file_bytes));
    plan.parameters.push_back(cut(input.parameters, flat.shard_numel, flat.parameter_bytes > 0,
                                  flat.parameter_bytes, tile, host_left[1],
                                  plan.parameter_file_bytes));
  }
  plan.tile = tile;
  if (plan.optimizer_file_bytes > 0) {
    plan.optimizer_tile_bytes = file_bytes(tile, vectors, input.optimizer_bytes);
    plan.optimizer_tiles = static_cast<int>(input.optimizer.tiles_at_once);
  }
  if (plan.parameter_file_bytes > 0) {
    plan.parameter_tile_bytes = file_bytes(tile, 1, element);
    plan.parameter_tiles = static_cast<int>(input.parameters.tiles_at_once);
  }
  return plan;
}

}  // namespace dsj::layout

#include "engine/zero/flat/flat_views.h"

#include <ATen/ATen.h>

namespace dsj::zero {

bool are_neighbours(const layout::FlatLayout& flat, int first, int count) {
  const auto& slots = flat.slots();
  if (first < 0 || first + count > static_cast<int>(slots.size())) return false;
  for (int i = first + 1; i < first + count; ++i)
    if (slots[i - 1].offset + slots[i - 1].numel != slots[i].offset) return false;
  return true;
}

std::vector<int64_t> stacked_shape(const layout::FlatLayout& flat, int first, int count) {
  const auto& slots = flat.slots();
  std::vector<int64_t> shape = slots[first].shape;
  for (int i = first + 1; i < first + count; ++i) shape[0] += slots[i].shape[0];
  return shape;
}

at::Tensor parameters_of(const layout::FlatLayout& flat, const at::Tensor& whole, int first,
                         int count) {
  if (!are_neighbours(flat, first, count)) return {};
  const auto& slots = flat.slots();
  int64_t numel = 0;
  for (int i = first; i < first + count; ++i) numel += slots[i].numel;
  return whole.narrow(0, slots[first].offset, numel).view(stacked_shape(flat, first, count));
}

std::vector<layout::Range> update_ranges(const layout::FlatLayout& flat, bool sharded, int rank) {
  if (sharded || flat.world() == 1) return flat.ranges(rank);
  std::vector<layout::Range> all;
  for (size_t s = 0; s < flat.slots().size(); ++s) {
    const layout::Slot& slot = flat.slots()[s];
    all.push_back({static_cast<int64_t>(s), 0, slot.numel, slot.offset, slot.offset});
  }
  return all;
}

std::vector<comm::ChunkPair> gather_pairs(const layout::FlatLayout& flat, const at::Tensor& whole,
                                          int rank, const at::Tensor& shard) {
  std::vector<comm::ChunkPair> pairs;
  for (const auto& chunk : flat.chunks())
    pairs.push_back({whole.narrow(0, chunk.offset, chunk.numel),
                     shard.defined()
                         ? shard.narrow(0, chunk.shard_offset, chunk.slice)
                         : whole.narrow(0, chunk.offset + rank * chunk.slice, chunk.slice)});
  return pairs;
}

std::vector<comm::ChunkPair> even_pairs(const layout::FlatLayout& flat, const at::Tensor& whole,
                                        const at::Tensor& part, int ranks) {
  std::vector<comm::ChunkPair> pairs;
  for (const auto& chunk : flat.chunks())
    pairs.push_back({whole.narrow(0, chunk.offset, chunk.numel),
                     part.narrow(0, chunk.offset / ranks, chunk.numel / ranks)});
  return pairs;
}

std::vector<comm::ChunkPair> scatter_pairs(const layout::FlatLayout& flat, const at::Tensor& shard,
                                           const at::Tensor& whole) {
  std::vector<comm::ChunkPair> pairs;
  for (const auto& chunk : flat.chunks())
    pairs.push_back({shard.narrow(0, chunk.shard_offset, chunk.slice),
                     whole.narrow(0, chunk.offset, chunk.numel)});
  return pairs;
}

}  // namespace dsj::zero

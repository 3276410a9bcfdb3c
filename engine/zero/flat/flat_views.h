// Views of a flat's tensors by its layout: parameters, the ranges that a rank updates, the chunks
// of a collective. Pure functions.
// Tested by: tests/engine/zero/flat/flat_test.cc, tests/engine/train/muon_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/comm/collectives.h"
#include "job/layout/partition.h"

namespace dsj::zero {

/// Whether `count` parameters from `first` on are adjacent, without padding between them.
bool are_neighbours(const layout::FlatLayout& flat, int first, int count);
/// The shape of one parameter, or of `count` neighbours from `first` on, stacked on the first
/// dimension.
std::vector<int64_t> stacked_shape(const layout::FlatLayout& flat, int first, int count);
/// A view of `count` neighbouring parameters of whole [numel], from `first` on: one in its shape,
/// several stacked on the first dimension. Undefined if they are not neighbours.
at::Tensor parameters_of(const layout::FlatLayout& flat, const at::Tensor& whole, int first,
                         int count = 1);

/// The ranges that a rank updates, in flat order. `sharded`: its share; else everything, with shard
/// offsets equal to flat offsets.
std::vector<layout::Range> update_ranges(const layout::FlatLayout& flat, bool sharded, int rank);

/// For all_gather: every chunk of whole [numel] from each rank's slice of it. This rank's slices
/// are in `shard`, or in `whole` itself if `shard` is undefined.
std::vector<comm::ChunkPair> gather_pairs(const layout::FlatLayout& flat, const at::Tensor& whole,
                                          int rank, const at::Tensor& shard = {});
/// For all_gather among `ranks` ranks, a divisor of the layout's: every chunk of whole [numel] from
/// equal parts of it. `part` [numel / ranks] holds this rank's part of each chunk, in chunk order.
std::vector<comm::ChunkPair> even_pairs(const layout::FlatLayout& flat, const at::Tensor& whole,
                                        const at::Tensor& part, int ranks);
/// For reduce_scatter: each chunk's slice in `shard`, from the chunk in `whole`.
std::vector<comm::ChunkPair> scatter_pairs(const layout::FlatLayout& flat, const at::Tensor& shard,
                                           const at::Tensor& whole);

}  // namespace dsj::zero

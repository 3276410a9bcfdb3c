// Views of a flat's tensors by its layout: parameters, what a rank updates, the chunks of a
// collective. Pure.
// Tested by: tests/engine/zero/flat_test.cc, tests/engine/train/muon_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/comm/collectives.h"
#include "job/layout/partition.h"

namespace dsj::zero {

/// Whether so many parameters from `first` on lie one after the other, without padding.
bool are_neighbours(const layout::FlatLayout& flat, int first, int count);
/// The shape of one parameter, or of `count` neighbours from `first` on that are stacked on the first
/// dimension.
std::vector<int64_t> stacked_shape(const layout::FlatLayout& flat, int first, int count);
/// `count` neighbouring parameters of whole [numel], from `first` on, as one tensor: one in its
/// shape, several stacked on the first dimension. Undefined if they are not neighbours.
at::Tensor parameters_of(const layout::FlatLayout& flat, const at::Tensor& whole, int first,
                         int count = 1);

/// What a rank updates, in flat order. `sharded`: its share; else everything, and shard offsets are
/// flat offsets.
std::vector<layout::Range> update_ranges(const layout::FlatLayout& flat, bool sharded, int rank);

/// For all_gather: every chunk of whole [numel] from each rank's slice of it, which lies in `shard`;
/// undefined: in `whole` itself.
std::vector<comm::ChunkPair> gather_pairs(const layout::FlatLayout& flat, const at::Tensor& whole,
                                          int rank, const at::Tensor& shard = {});
/// For all_gather among so many ranks, which divide the layout's: every chunk of whole [numel] from
/// equal parts of it. `part` [numel / ranks] holds this rank's part of each chunk, in chunk order.
std::vector<comm::ChunkPair> even_pairs(const layout::FlatLayout& flat, const at::Tensor& whole,
                                        const at::Tensor& part, int ranks);
/// For reduce_scatter: each chunk's slice in `shard` from the chunk in `whole`.
std::vector<comm::ChunkPair> scatter_pairs(const layout::FlatLayout& flat, const at::Tensor& shard,
                                           const at::Tensor& whole);

}  // namespace dsj::zero

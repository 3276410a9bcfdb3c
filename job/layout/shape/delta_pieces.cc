#include "job/layout/shape/delta_pieces.h"

#include <algorithm>
#include <numeric>

namespace dsj::layout {

int64_t DeltaPiece::chunks() const {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

namespace {

/// A long row keeps at most one state per four chunks: the number of rows that run together is
/// limited so that a piece has four chunks of each.
constexpr int64_t kStepsOfPiece = 4;

DeltaGroup group_of(std::vector<int64_t> rows, std::span<const int64_t> lengths) {
  DeltaGroup group{.rows = std::move(rows)};
  const int64_t longest = lengths[group.rows.front()];
  group.chunk = std::min(kDeltaChunk, longest);
  int64_t held = 0;
  for (int64_t first = 0, step = 0; first < longest; first += group.chunk, ++step) {
    const int64_t there =
        std::ranges::count_if(group.rows, [&](int64_t row) { return lengths[row] > first; });
    if (group.pieces.empty() || held + there > kDeltaChunks) {
      group.pieces.push_back({.first_step = step});
      held = 0;
    }
    group.pieces.back().rows.push_back(there);
    held += there;
  }
  return group;
}

}  // namespace

std::vector<DeltaGroup> delta_groups(std::span<const int64_t> lengths) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](int64_t row) { return lengths[row]; });
  std::vector<DeltaGroup> groups;
  for (size_t first = 0; first < order.size();) {
    const int64_t steps = (lengths[order[first]] + kDeltaChunk - 1) / kDeltaChunk;
    const auto most = static_cast<size_t>(kDeltaChunks / std::min(steps, kStepsOfPiece));
    const size_t count = std::min(most, order.size() - first);
    const auto begin = order.begin() + static_cast<ptrdiff_t>(first);
    groups.push_back(group_of({begin, begin + static_cast<ptrdiff_t>(count)}, lengths));
    first += count;
  }
  return groups;
}

DeltaSizes delta_sizes(std::span<const int64_t> lengths) {
  DeltaSizes sizes;
  for (const DeltaGroup& group : delta_groups(lengths)) {
    for (const DeltaPiece& piece : group.pieces) {
      sizes.tokens = std::max(sizes.tokens, piece.chunks() * group.chunk);
      if (piece.first_step > 0) sizes.states += piece.rows.front();
    }
  }
  return sizes;
}

}  // namespace dsj::layout

// Packing: which rows lie end to end in one packed row of at most `capacity` tokens. Rows are
// placed longest first, each into the fullest packed row that still has room for it (best-fit
// decreasing, TRL's "bfd"); no row is cut in two. Pure: the same lengths make the same packs on
// every rank, and at every world size. The sampler deals packs as it deals rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/data/row_sizes.h"

namespace dsj::data {

class Packs {
 public:
  /// Sizes of the rows to pack, each of 1 to `capacity` tokens (DSJ_CHECK).
  Packs(std::span<const RowSize> rows, int64_t capacity);

  int64_t count() const { return static_cast<int64_t>(sizes_.size()); }
  /// The rows of a pack, in the order in which they lie there.
  std::span<const int64_t> rows(int64_t pack) const;
  /// Tokens and targets of every pack.
  const std::vector<RowSize>& sizes() const { return sizes_; }
  /// Tokens that lie in packs, as a share of what they could hold: above 0, at most 1.
  double filled() const;

 private:
  int64_t capacity_;
  std::vector<int64_t> rows_;    ///< of all packs, one after the other
  std::vector<int64_t> starts_;  ///< [count + 1]: where a pack begins in rows_
  std::vector<RowSize> sizes_;
};

}  // namespace dsj::data

// Packing: puts rows, or parts of rows, end to end into packed rows of at most `capacity` tokens.
// The strategies are TRL's:
//   bfd        rows are placed longest first, each into the fullest packed row that still has room for
//              it (best-fit decreasing). Longer rows were cut to `capacity` before.
//   bfd_split  the same, but a longer row is cut into parts of `capacity` tokens and a shorter last
//              one, so nothing is lost.
//   wrapped    all rows one after the other, cut every `capacity` tokens. The parts in a packed row
//              are one row: they attend to each other, and the last token of one predicts the first
//              of the next. As in TRL it takes 1,000 rows at a time, whose last packed row
//              may be shorter.
// Pure: equal lengths give equal packs on every rank and at every world size. The sampler deals
// packs like rows.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "engine/data/row_sizes.h"
#include "engine/data/shapes/sample.h"

namespace dsj::data {

enum class PackingStrategy { Bfd, BfdSplit, Wrapped };
/// training.packingStrategy; nullopt if training.packing is not set. The schema checks the name.
std::optional<PackingStrategy> packing_of(bool packing, std::string_view strategy);
/// "bfd", "bfd_split", "wrapped"
std::string_view name_of(PackingStrategy strategy);
/// Whether packs are made of whole rows or of rows cut to max_seq_length.
constexpr RowCut cut_of(PackingStrategy strategy) {
  return strategy == PackingStrategy::Bfd ? RowCut::AtMaxLength : RowCut::Never;
}

/// Tokens begin .. begin + tokens - 1 of a row.
struct RowPart {
  int64_t row = 0;
  int32_t begin = 0, tokens = 0;
  friend bool operator==(const RowPart&, const RowPart&) = default;
};

class Packs {
 public:
  /// `rows`: sizes of the rows to pack, cut as cut_of() says, each at least one token; for bfd
  /// at most `capacity` (DSJ_CHECK).
  Packs(std::span<const RowSize> rows, int64_t capacity,
        PackingStrategy strategy = PackingStrategy::Bfd);

  int64_t count() const { return static_cast<int64_t>(sizes_.size()); }
  PackingStrategy strategy() const { return strategy_; }
  /// The parts of a pack, in order.
  std::span<const RowPart> parts(int64_t pack) const;
  /// Tokens and targets of every pack. For rows that are split, targets are an upper bound,
  /// because it is not known which of their tokens are targets.
  const std::vector<RowSize>& sizes() const { return sizes_; }
  /// Tokens of the longest row that the model sees; with wrapped a pack is one row.
  int32_t longest_row() const;
  /// Share of the packs' capacity that is filled, in (0, 1].
  double filled() const;
  /// The rows of the micro-batch for a pack. `row_at` reads a row, cut as cut_of() says.
  /// Errors: those of row_at, or Environment if a row's number of tokens has changed.
  Result<std::vector<Sample>> samples(int64_t pack,
                                      const std::function<Result<Sample>(int64_t)>& row_at) const;

 private:
  void best_fit(std::vector<RowPart> parts, std::span<const RowSize> rows);
  void wrap(std::span<const RowSize> rows);

  int64_t capacity_;
  PackingStrategy strategy_;
  std::vector<RowPart> parts_;   ///< of all packs in turn
  std::vector<int64_t> starts_;  ///< [count + 1]: start of each pack in parts_
  std::vector<RowSize> sizes_;
};

}  // namespace dsj::data

// Packing: which tokens of which rows lie end to end in one packed row of at most `capacity` tokens.
// TRL's three strategies:
//   bfd        rows are placed longest first, each into the fullest packed row that still has room for
//              it (best-fit decreasing). Longer rows were cut to `capacity` before.
//   bfd_split  the same, but a longer row is cut into parts of `capacity` tokens and a shorter last
//              one: nothing is lost.
//   wrapped    all rows one after the other, cut every `capacity` tokens. The parts in a packed row
//              are one row: they attend to each other, and the last token of one predicts the first
//              of the next. Like TRL, 1,000 rows at a time: their last packed row may be shorter.
// Pure: the same lengths make the same packs on every rank, and at every world size. The sampler deals
// packs as it deals rows.
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
/// training.packingStrategy; nullopt where training.packing is not set. The schema has checked the name.
std::optional<PackingStrategy> packing_of(bool packing, std::string_view strategy);
/// "bfd", "bfd_split", "wrapped"
std::string_view name_of(PackingStrategy strategy);
/// What packs are made of: whole rows, or rows cut to max_seq_length.
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
  /// Sizes of the rows to pack, cut as cut_of() says, each at least one token; of bfd at most
  /// `capacity` (DSJ_CHECK).
  Packs(std::span<const RowSize> rows, int64_t capacity,
        PackingStrategy strategy = PackingStrategy::Bfd);

  int64_t count() const { return static_cast<int64_t>(sizes_.size()); }
  PackingStrategy strategy() const { return strategy_; }
  /// In the order in which they lie in the pack.
  std::span<const RowPart> parts(int64_t pack) const;
  /// Tokens and targets of every pack. Of rows that are cut the targets are a bound from above: which
  /// tokens of a row are targets is not known here.
  const std::vector<RowSize>& sizes() const { return sizes_; }
  /// Tokens of the longest row that the model sees: of wrapped a pack is one.
  int32_t longest_row() const;
  /// Tokens that lie in packs, as a share of what they could hold: above 0, at most 1.
  double filled() const;
  /// The rows of a micro-batch that a pack becomes. `row_at` reads a row, cut as cut_of() says. Error:
  /// row_at's, or Environment if a row has not as many tokens as it had.
  Result<std::vector<Sample>> samples(int64_t pack,
                                      const std::function<Result<Sample>(int64_t)>& row_at) const;

 private:
  void best_fit(std::vector<RowPart> parts, std::span<const RowSize> rows);
  void wrap(std::span<const RowSize> rows);

  int64_t capacity_;
  PackingStrategy strategy_;
  std::vector<RowPart> parts_;   ///< of all packs, one after the other
  std::vector<int64_t> starts_;  ///< [count + 1]: where a pack begins in parts_
  std::vector<RowSize> sizes_;
};

}  // namespace dsj::data

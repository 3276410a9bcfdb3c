// Embedding gradients as rows (sparse_gradients): which flats send them, and their cost. The engine
// (engine/zero/flat/row_gradients) and the memory model use it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/dsconfig/config/resolved.h"
#include "job/layout/model_config.h"
#include "job/layout/partition.h"
#include "job/layout/units.h"

namespace dsj::plan {

/// Why embedding gradients are sent dense although sparse_gradients is on, for the user. Empty if
/// they are not, or if the key is off.
std::string dense_because(const std::vector<layout::UnitSpec>& units,
                          const dsconfig::ResolvedConfig& config);

/// Whether the flat's gradient may be sent as rows: sparse_gradients is on, and the flat has only
/// the embedding's tables. A tied head gives every row a gradient.
bool sends_rows(const std::vector<layout::UnitSpec>& units, const layout::FlatPlan& plan,
                const dsconfig::ResolvedConfig& config, int flat);

/// Elements of a row, over all tables of the flat.
int64_t row_width(const layout::FlatLayout& flat);

/// Elements that are scanned at a time for non-zero rows.
inline constexpr int64_t kScannedElements = 1 << 20;

/// One reduction of a flat on one rank. `rows`: the most that a rank sends; `type`: bytes per
/// element.
struct RowCost {
  const layout::FlatLayout& flat;
  bool sharded;  ///< each rank needs only its shard
  int world;
  int64_t rows, type;

  /// Bytes that a rank sends, by a ring's formulas: dense, and as rows with their indices.
  int64_t dense_bytes() const;
  int64_t row_bytes() const;
  /// Whether rows are fewer bytes. The same on every rank.
  bool pays() const { return row_bytes() < dense_bytes(); }
  /// Bytes of the ranks' counts, which are sent before either.
  int64_t count_bytes() const { return 8 * (world - 1); }
  /// The most bytes of rows, sums and indices that are alive meanwhile.
  int64_t scratch() const;
};

/// The most rows that a rank touches in `tokens` tokens of rows of `tokens_per_row`.
int64_t touched_rows(const layout::FlatLayout& flat, int64_t tokens, int64_t tokens_per_row);

}  // namespace dsj::plan

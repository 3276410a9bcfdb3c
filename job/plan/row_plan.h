// Embedding gradients as rows (sparse_gradients): which flats send them, and what that costs. The
// engine (engine/zero/row_gradients) and the memory model go by it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/dsconfig/resolved.h"
#include "job/layout/model_config.h"
#include "job/layout/partition.h"
#include "job/layout/units.h"

namespace dsj::plan {

/// Why embedding gradients travel dense although sparse_gradients is on, for the user. Empty: they
/// do not, or the key is off.
std::string dense_because(const std::vector<layout::UnitSpec>& units,
                          const dsconfig::ResolvedConfig& config);

/// Whether the flat's gradient may travel as rows: sparse_gradients is on, and the flat holds the
/// embedding's tables and nothing else. A tied head gives every row a gradient.
bool sends_rows(const std::vector<layout::UnitSpec>& units, const layout::FlatPlan& plan,
                const dsconfig::ResolvedConfig& config, int flat);

/// Elements of a row: of all tables of the flat.
int64_t row_width(const layout::FlatLayout& flat);

/// Elements that are looked at at a time for rows that are not 0.
inline constexpr int64_t kScannedElements = 1 << 20;

/// One reduction of a flat on one rank. `rows`: the most that a rank sends; `type`: bytes of an
/// element.
struct RowCost {
  const layout::FlatLayout& flat;
  bool sharded;  ///< each rank wants its shard alone
  int world;
  int64_t rows, type;

  /// Bytes that a rank sends, by the formulas of a ring: dense, and as rows with their numbers.
  int64_t dense_bytes() const;
  int64_t row_bytes() const;
  /// The same question on every rank: rows only where they are fewer bytes.
  bool pays() const { return row_bytes() < dense_bytes(); }
  /// The ranks' counts go ahead of either.
  int64_t count_bytes() const { return 8 * (world - 1); }
  /// Bytes of rows, sums and numbers that live meanwhile, at most.
  int64_t scratch() const;
};

/// The most rows that a rank touches in `tokens` tokens of rows of `tokens_per_row`.
int64_t touched_rows(const layout::FlatLayout& flat, int64_t tokens, int64_t tokens_per_row);

}  // namespace dsj::plan

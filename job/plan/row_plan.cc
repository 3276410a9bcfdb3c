#include "job/plan/row_plan.h"

#include <algorithm>

namespace dsj::plan {
namespace {

bool tied(const std::vector<layout::UnitSpec>& units) {
  return std::ranges::any_of(units, &layout::UnitSpec::uses_embedding);
}

}  // namespace

std::string dense_because(const std::vector<layout::UnitSpec>& units,
                          const dsconfig::ResolvedConfig& config) {
  if (!config.sparse_gradients) return "";
  if (tied(units))
    return "the embedding is tied to the head, whose gradient has every row: it is sent dense";
  if (std::ranges::all_of(units.front().parameters, &layout::Parameter::frozen))
    return "the embedding is not trained: it has no gradient";
  return "";
}

bool sends_rows(const std::vector<layout::UnitSpec>& units, const layout::FlatPlan& plan,
                const dsconfig::ResolvedConfig& config, int flat) {
  return config.sparse_gradients && !tied(units) && plan.unit_flat.front() == flat &&
         !plan.is_persisted(flat);
}

int64_t row_width(const layout::FlatLayout& flat) {
  return flat.slots().front().shape.back();
}

int64_t RowCost::dense_bytes() const {
  return flat.numel() / world * (world - 1) * type * (sharded ? 1 : 2);
}

int64_t RowCost::row_bytes() const {
  return (world - 1) * rows * (8 + row_width(flat) * type);
}

int64_t RowCost::scratch() const {
  const int64_t width = row_width(flat), all = world * rows;
  const int64_t sent = all * (8 + width * type);
  const int64_t own = rows * width * (4 + type);
  const int64_t sums = all * (width * (4 + type) + 8 * 6);
  const int64_t scan = 2 * std::min(flat.numel(), kScannedElements) + 3 * 8 * rows;
  return sent + own + sums + scan;
}

int64_t touched_rows(const layout::FlatLayout& flat, int64_t tokens, int64_t tokens_per_row) {
  int64_t rows = 0;
  for (size_t s = 0; s < flat.slots().size(); ++s)  // the second table is the positions
    rows += std::min(flat.slots()[s].shape.front(), s == 0 ? tokens : tokens_per_row);
  return rows;
}

}  // namespace dsj::plan

// Reduces a flat of embeddings by the rows that have a gradient (sparse_gradients). Each rank sends
// the numbers and values of its nonzero rows, and all ranks sum them. Values of one row are summed
// in fp32 in rank order and rounded once. Flat owns one per reduction in flight. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/comm/collectives.h"
#include "job/layout/partition.h"

namespace dsj::zero {

class RowGradients {
 public:
  struct Options {
    at::ScalarType communication = at::kFloat;  ///< of the values on the wire
    double factor = 1;                          ///< multiplies the values before sending
    bool sharded = false;                       ///< each rank needs only its shard
  };

  /// Sends the rows of `gradient` [flat.numel()] that are not all 0. The caller may free `gradient`
  /// afterwards. Returns null, on all ranks, if a dense reduction sends fewer bytes
  /// (job/plan/row_plan.h). Waits for the ranks' counts. Collective.
  static std::unique_ptr<RowGradients> start(const layout::FlatLayout& flat,
                                             const at::Tensor& gradient, const Options& options,
                                             comm::Collectives& collectives, comm::Label label);

  /// Waits for start() and writes out [shard], in the type on the wire: the sums of `ranges`, each
  /// at its shard_offset, and 0 elsewhere.
  void read(const std::vector<layout::Range>& ranges, const at::Tensor& out);

 private:
  /// The sums of all rows that any rank sent.
  struct Sums {
    std::vector<int64_t> numbers;  ///< ascending
    at::Tensor rows;               ///< [numbers] on the device
    at::Tensor values;             ///< [numbers, width]
  };
  explicit RowGradients(const layout::FlatLayout& flat);
  Sums add() const;
  void place(const Sums& sums, int64_t first, int64_t numel, int64_t base,
             const at::Tensor& out) const;

  const int64_t width_;
  std::vector<int64_t> bases_;   ///< [slot]: the number of its first row
  std::vector<int64_t> counts_;  ///< [rank]
  at::Tensor numbers_;           ///< [world, most] int64
  at::Tensor values_;            ///< [world, most, width]
  std::vector<comm::WorkPtr> works_;
};

}  // namespace dsj::zero

// The reduction of a flat of embeddings by the rows that have a gradient (sparse_gradients), instead
// of whole: each rank sends the numbers of its rows and their values, and all sum them. Flat owns one
// while a reduction is in flight. Not thread-safe. Arithmetic: values of one row are summed over
// ranks in order, in fp32, and rounded once.
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
    double factor = 1;                          ///< on the values, before they are sent
    bool sharded = false;                       ///< each rank wants its shard alone
  };

  /// Sends the rows of `gradient` [flat.numel()] that are not all 0; it is not needed afterwards.
  /// Null: dense is fewer bytes (job/plan/row_plan.h), on all ranks alike. Collective. Waits for the
  /// ranks' counts.
  static std::unique_ptr<RowGradients> start(const layout::FlatLayout& flat,
                                             const at::Tensor& gradient, const Options& options,
                                             comm::Collectives& collectives, comm::Label label);

  /// out [shard], of the type on the wire: the sums of `ranges`, each at its shard_offset; else 0.
  /// Waits for what start() has sent.
  void read(const std::vector<layout::Range>& ranges, const at::Tensor& out);

 private:
  /// Every row that a rank has sent.
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

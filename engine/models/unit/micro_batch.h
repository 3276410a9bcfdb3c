// The input of one micro-step: tokens, row bounds and targets.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/models/ops/row_bounds.h"

namespace dsj::models {

/// The tokens with a target: token t of a row predicts label t + 1, unless that is -100. The last
/// token of a row has no target.
struct Targets {
  int64_t count = 0;
  at::Tensor tokens;  ///< [count] int64, ascending, on the device: token indices
  at::Tensor labels;  ///< [count] int64, on the device: the label of each
};

/// This rank's part of a micro-batch's tokens, if ranks share it.
struct TokenPart {
  int index = 0, count = 1;
};

/// The tokens of rows, concatenated. N: the number of tokens.
class MicroBatch {
 public:
  /// `input_ids` [N] int64, on the device. `labels` [N] int64, aligned with input_ids, on the host,
  /// so that targets are counted without waiting for the device. `rows`: must cover these N >= 1
  /// tokens (DSJ_CHECK).
  MicroBatch(at::Tensor input_ids, at::Tensor labels, RowBounds rows);
  /// Makes one of `part.count` equal parts of rows of `lengths`: adjacent tokens, with their
  /// positions in their rows and the targets of the whole rows. `input_ids` and `labels`: of all
  /// tokens, on the host. For equal parts, a row of less than part.count tokens without targets may
  /// be appended.
  static MicroBatch part_of(const at::Tensor& input_ids, const at::Tensor& labels,
                            std::span<const int64_t> lengths, TokenPart part, at::Device device);

  /// Makes rows of which a reward model scores the tokens `scored`, ascending, at most one per row.
  /// These are the targets, without labels.
  static MicroBatch of_scored(at::Tensor input_ids, RowBounds rows,
                              const std::vector<int64_t>& scored);

  const at::Tensor& input_ids() const { return input_ids_; }
  /// [N], on the host; undefined for a part.
  const at::Tensor& labels() const { return labels_; }
  /// The rows of these tokens: a row that is cut has only this rank's tokens.
  const RowBounds& rows() const { return rows_; }
  /// The rows of all tokens, as attention sees them; equals rows() unless this is a part.
  const RowBounds& all_rows() const { return whole_ ? whole_->rows : rows_; }
  bool is_part() const { return whole_ != nullptr; }
  const Targets& targets() const { return targets_; }
  /// The number of targets of all parts.
  int64_t all_targets() const { return whole_ ? whole_->targets : targets_.count; }
  /// The tokens for which the last layer computes an output: those with a target. Null means all
  /// tokens, because no token, or nearly every token, has a target.
  const at::Tensor* last_outputs() const;

 private:
  struct Whole {
    RowBounds rows;
    int64_t targets = 0;
  };
  MicroBatch() = default;

  at::Tensor input_ids_, labels_;
  RowBounds rows_;
  Targets targets_;
  std::shared_ptr<const Whole> whole_;  ///< set for a part
};

}  // namespace dsj::models

// What one micro-step of a model computes: tokens, where their rows end, and what they predict.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/models/row_bounds.h"

namespace dsj::models {

/// The tokens that predict something: token t of a row predicts label t + 1, unless that is -100.
/// The last token of a row predicts nothing.
struct Targets {
  int64_t count = 0;
  at::Tensor tokens;  ///< [count] int64, ascending, on the device: which tokens
  at::Tensor labels;  ///< [count] int64, on the device: what each of them predicts
};

/// Rows' tokens, end to end. N: how many tokens.
class MicroBatch {
 public:
  /// `input_ids` [N] int64, on the device. `labels` [N] int64, aligned with input_ids, on the host,
  /// where the targets are counted without waiting for the device. `rows`: of these N tokens, at
  /// least 1 (DSJ_CHECK: nothing may run on tokens whose rows are not known).
  MicroBatch(at::Tensor input_ids, at::Tensor labels, RowBounds rows);

  const at::Tensor& input_ids() const { return input_ids_; }
  const at::Tensor& labels() const { return labels_; }
  const RowBounds& rows() const { return rows_; }
  const Targets& targets() const { return targets_; }
  /// The tokens whose output the last layer gives: those that have a target. Null: all tokens,
  /// because no token has a target, or nearly all have one.
  const at::Tensor* last_outputs() const;

 private:
  at::Tensor input_ids_, labels_;
  RowBounds rows_;
  Targets targets_;
};

}  // namespace dsj::models

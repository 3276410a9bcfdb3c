// What one micro-step of a model computes: tokens, where their rows end, and what they predict.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/models/row_bounds.h"

namespace dsj::models {

/// The tokens that predict something: token t of a row predicts label t + 1, unless that is -100.
/// The last token of a row predicts nothing.
struct Targets {
  int64_t count = 0;
  at::Tensor tokens;  ///< [count] int64, ascending, on the device: which tokens
  at::Tensor labels;  ///< [count] int64, on the device: what each of them predicts
};

/// Which part of a micro-batch's tokens a rank has, where ranks share it.
struct TokenPart {
  int index = 0, count = 1;
};

/// Rows' tokens, end to end. N: how many tokens.
class MicroBatch {
 public:
  /// `input_ids` [N] int64, on the device. `labels` [N] int64, aligned with input_ids, on the host,
  /// where the targets are counted without waiting for the device. `rows`: of these N tokens, at
  /// least 1 (DSJ_CHECK: nothing may run on tokens whose rows are not known).
  MicroBatch(at::Tensor input_ids, at::Tensor labels, RowBounds rows);
  /// One of `part.count` equal parts of rows of `lengths`: neighbouring tokens, with their positions in
  /// their rows and the targets of the whole rows. `input_ids` and `labels` of all tokens, on the host.
  /// Where the parts would not be equal a row of less than part.count tokens without targets follows.
  static MicroBatch part_of(const at::Tensor& input_ids, const at::Tensor& labels,
                            std::span<const int64_t> lengths, TokenPart part, at::Device place);

  /// Rows of which a reward model scores the tokens `scored`, ascending, at most one of each row: they are
  /// the targets, without labels.
  static MicroBatch of_scored(at::Tensor input_ids, RowBounds rows,
                              const std::vector<int64_t>& scored);

  const at::Tensor& input_ids() const { return input_ids_; }
  /// [N], on the host; undefined of a part.
  const at::Tensor& labels() const { return labels_; }
  /// Of these tokens: a row of which other ranks have tokens is here with its own part alone.
  const RowBounds& rows() const { return rows_; }
  /// Of all tokens, which attention sees; rows() unless this is a part.
  const RowBounds& all_rows() const { return whole_ ? whole_->rows : rows_; }
  bool is_part() const { return whole_ != nullptr; }
  const Targets& targets() const { return targets_; }
  /// Of all parts.
  int64_t all_targets() const { return whole_ ? whole_->targets : targets_.count; }
  /// The tokens whose output the last layer gives: those that have a target. Null: all tokens,
  /// because no token has a target, or nearly all have one.
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
  std::shared_ptr<const Whole> whole_;  ///< of a part
};

}  // namespace dsj::models

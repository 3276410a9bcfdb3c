// Concatenates rows of different lengths to one sequence, for the loader and for evaluation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/data/shapes/sample.h"

namespace dsj::data {

/// A part of a batch's targets: an answer that is judged as a whole, or the prompt before it.
struct AnswerPart {
  int64_t targets = 0;   ///< tokens that are predicted
  int64_t tokens = 0;    ///< including the row's first token, if it is in the answer
  double reference = 0;  ///< from Sample::reference; 0 if it has none
  bool good = true;      ///< from Sample::good
  double margin = 0;     ///< from Sample::margin, of the chosen row
};

/// Rows end to end, without padding; row_lengths tells the model where each row ends.
struct Batch {
  std::vector<int64_t> input_ids;
  std::vector<int64_t> labels;       ///< labels[i] belongs to input_ids[i]; not shifted
  std::vector<int64_t> row_lengths;  ///< in tokens, each at least 1
  /// For pairs, in turn: the chosen row's prompt if it is learned (Sample::answer), the chosen
  /// answer, the rejected answer. For marked rows: each answer. Empty for other samples.
  std::vector<AnswerPart> parts;
  /// Whether rows are scored, and for each row the index of the token that is scored.
  bool is_scored = false;
  std::vector<int64_t> scored;
  std::vector<Batch> beside;  ///< from Sample::beside: one batch with as many rows, or none
  int64_t tokens() const { return static_cast<int64_t>(input_ids.size()); }
};

/// `samples`: at least one, none empty; all are pairs, all are marked, or neither (DSJ_CHECK).
Batch collate(std::span<const Sample> samples);

}  // namespace dsj::data

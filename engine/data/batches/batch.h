// Rows of different lengths as one run of tokens, for the loader and for evaluation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/data/shapes/sample.h"

namespace dsj::data {

/// An answer that is judged as a whole, or a prompt before it: a part of a batch's targets.
struct AnswerPart {
  int64_t targets = 0;   ///< tokens that another one predicts
  int64_t tokens = 0;    ///< with the row's first token, if it is of the answer
  double reference = 0;  ///< of Sample::reference; 0: it has none
  bool good = true;      ///< of Sample::good
  double margin = 0;     ///< of Sample::margin, of the chosen row
};

/// Rows laid end to end. Nothing is padded: the model is told where each row ends.
struct Batch {
  std::vector<int64_t> input_ids;
  std::vector<int64_t> labels;       ///< beside their own tokens; not shifted
  std::vector<int64_t> row_lengths;  ///< in tokens, each at least 1
  /// Of pairs in turn: the chosen answer, the rejected one; before them the chosen row's prompt if it
  /// is learned (Sample::answer). Of marked rows the answer of each. Empty: the samples are other rows.
  std::vector<AnswerPart> parts;
  /// Where rows are scored: whether, and of each row the token whose score counts.
  bool is_scored = false;
  std::vector<int64_t> scored;
  std::vector<Batch> beside;  ///< of Sample::beside: one batch of as many rows, or none
  int64_t tokens() const { return static_cast<int64_t>(input_ids.size()); }
};

/// `samples`: at least one, none of them empty; all of them pairs, or marked, or none (DSJ_CHECK).
Batch collate(std::span<const Sample> samples);

}  // namespace dsj::data

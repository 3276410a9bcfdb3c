// What the memory model counts with: a model, a resolved config, a world size. Plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "job/dsconfig/objective.h"
#include "job/dsconfig/resolved.h"
#include "job/layout/lora.h"
#include "job/layout/model_config.h"
#include "job/layout/row_pieces.h"
#include "job/training_args.h"

namespace dsj::plan {

/// A micro-batch's tokens, and how many of them have a target.
struct MicroBatchTokens {
  int64_t tokens = 0, targets = 0;
};

struct MemoryInput {
  layout::ModelConfig model;
  dsconfig::ResolvedConfig config;  ///< of a complete Resolution
  int world = 1;
  int64_t tokens_per_row = 2048;  ///< the longest row
  bool recompute = false;         ///< gradient_checkpointing
  bool native_products = true;    ///< the CPU has units for the type (common/cpu.h)
  /// What is trained, as layout::units_of() takes it; unset: everything.
  std::optional<LoraArgs> lora;
  /// By rows per micro-batch: the most tokens and the most targets of any micro-batch of so many
  /// rows. For other numbers of rows all rows are taken to be the longest.
  std::map<int64_t, MicroBatchTokens> micro_batches = {};
  bool accelerator = false;       ///< ranks compute on one, not in host memory
  layout::PieceRule pieces = {};  ///< as the engine cuts

  /// Whether the inputs of layers leave the device until they are recomputed from.
  bool inputs_leave() const { return recompute && config.cpu_checkpointing; }
};

/// Tokens to which a row of the job is cut. As in Trainer, a length that is asked for goes beyond
/// the positions that the model was made for, where rope can: resolve() warns of it.
inline int64_t longest_row(const TrainingArgs& training, const layout::ModelConfig& model) {
  if (training.max_seq_length && !model.learned_positions) return *training.max_seq_length;
  return std::min(training.max_seq_length.value_or(2048),
                  std::max<int64_t>(1, model.longest_sequence()));
}

/// Tokens of what a row of the data becomes: of a pair's two rows.
inline int64_t longest_sample(const TrainingArgs& training, const layout::ModelConfig& model) {
  return longest_row(training, model) * dsconfig::objective_of(training).rows_of_sample();
}

/// Of rows that are cut over ranks: one rank's, the most that it can have.
inline MicroBatchTokens part_of(const MicroBatchTokens& whole, int64_t ranks) {
  const int64_t tokens = (whole.tokens + ranks - 1) / ranks;
  return {tokens, std::min(whole.targets, tokens)};
}

/// Of the config's micro-batch size, on all ranks that share it.
inline MicroBatchTokens micro_batch_tokens(const MemoryInput& input) {
  const int64_t rows = input.config.micro_batch_size;
  if (const auto known = input.micro_batches.find(rows); known != input.micro_batches.end())
    return known->second;
  if (input.model.scored) return {rows * input.tokens_per_row, 2 * rows};
  return {rows * input.tokens_per_row, rows * (input.tokens_per_row - 1)};
}

}  // namespace dsj::plan

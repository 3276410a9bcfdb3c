// The inputs of the memory model: a model, a resolved config, a world size. Plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "job/dsconfig/config/objective.h"
#include "job/dsconfig/config/resolved.h"
#include "job/layout/lora.h"
#include "job/layout/model_config.h"
#include "job/layout/row_pieces.h"
#include "job/training_args.h"

namespace dsj::plan {

/// The tokens of a micro-batch, and how many of them have a target.
struct MicroBatchTokens {
  int64_t tokens = 0, targets = 0;
};

struct MemoryInput {
  layout::ModelConfig model;
  dsconfig::ResolvedConfig config;  ///< from a complete Resolution
  int world = 1;
  int64_t tokens_per_row = 2048;  ///< the longest row
  bool recompute = false;         ///< gradient_checkpointing
  bool native_products = true;    ///< the CPU has units for the type (common/cpu.h)
  /// What is trained, as layout::units_of() takes it; unset: all parameters.
  std::optional<LoraArgs> lora;
  /// By rows per micro-batch: the most tokens and the most targets of any micro-batch with this
  /// number of rows. For other numbers, all rows count as the longest.
  std::map<int64_t, MicroBatchTokens> micro_batches = {};
  bool accelerator = false;       ///< ranks compute on one; false: in host memory
  layout::PieceRule pieces = {};  ///< the same as the engine's

  /// Whether the inputs of layers are offloaded until they are recomputed from.
  bool inputs_leave() const { return recompute && config.cpu_checkpointing; }
};

/// The length to which a job's rows are cut. As in Trainer, a given length may exceed the positions
/// that the model was made for, if it has rope: resolve() warns of it.
inline int64_t longest_row(const TrainingArgs& training, const layout::ModelConfig& model) {
  if (training.max_seq_length && !model.learned_positions) return *training.max_seq_length;
  return std::min(training.max_seq_length.value_or(2048),
                  std::max<int64_t>(1, model.longest_sequence()));
}

/// The most tokens of a sample; a pair has two rows.
inline int64_t longest_sample(const TrainingArgs& training, const layout::ModelConfig& model) {
  return longest_row(training, model) * dsconfig::objective_of(training).rows_of_sample();
}

/// The most that one rank can get if ranks share rows.
inline MicroBatchTokens part_of(const MicroBatchTokens& whole, int64_t ranks) {
  const int64_t tokens = (whole.tokens + ranks - 1) / ranks;
  return {tokens, std::min(whole.targets, tokens)};
}

/// For the config's micro-batch size, on all ranks that share it.
inline MicroBatchTokens micro_batch_tokens(const MemoryInput& input) {
  const int64_t rows = input.config.micro_batch_size;
  if (const auto known = input.micro_batches.find(rows); known != input.micro_batches.end())
    return known->second;
  if (input.model.scored) return {rows * input.tokens_per_row, 2 * rows};
  return {rows * input.tokens_per_row, rows * (input.tokens_per_row - 1)};
}

}  // namespace dsj::plan

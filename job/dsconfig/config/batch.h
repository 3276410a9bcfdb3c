// DeepSpeed's batch rule: train_batch_size = micro-batch x accumulation x world size (or the number
// of groups of sequence_parallel_size ranks). Arithmetic only; resolve() calls it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dsj::dsconfig {

inline constexpr char kTrainBatchKey[] = "train_batch_size";
inline constexpr char kMicroBatchKey[] = "train_micro_batch_size_per_gpu";
inline constexpr char kAccumulationKey[] = "gradient_accumulation_steps";
inline constexpr char kSequenceKey[] = "sequence_parallel_size";

struct BatchValue {
  std::optional<int64_t> value;  ///< above 0 if given
  std::string from;              ///< its source: "ds_config", "training.perDeviceTrainBatchSize"
};

struct BatchGiven {
  BatchValue train, micro, accumulation;
  int64_t world_size = 1;
  int64_t sequence_parallel_size = 1;  ///< divides the world size
  /// The number of micro-batches that are processed in parallel.
  int64_t ranks() const { return world_size / sequence_parallel_size; }
};

struct BatchTriple {
  int64_t train = 0, micro = 0, accumulation = 0;
};

struct BatchAnswer {
  std::optional<BatchTriple> triple;
  std::string problem;  ///< if there is no triple: the numbers and their sources
  std::string hint;     ///< the nearest valid triples
};

/// Two of the three determine the third. Only train or only micro: accumulation is 1. Only
/// accumulation, or none: refused.
BatchAnswer solve_batch(const BatchGiven& given);

}  // namespace dsj::dsconfig

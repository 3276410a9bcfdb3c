// The batch triangle: train_batch_size = micro batch x accumulation x world size, DeepSpeed's rule.
// Arithmetic only; resolve() calls it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dsj::dsconfig {

struct BatchValue {
  std::optional<int64_t> value;  ///< > 0 when given
  std::string from;              ///< who set it: "ds_config", "training.perDeviceTrainBatchSize"
};

struct BatchGiven {
  BatchValue train, micro, accumulation;
  int64_t world_size = 1;
};

struct BatchTriple {
  int64_t train = 0, micro = 0, accumulation = 0;
};

struct BatchAnswer {
  std::optional<BatchTriple> triple;
  std::string problem;  ///< the numbers and who set each, when there is no triple
  std::string hint;     ///< the nearest triples that hold
};

/// Two of the three decide the third; train alone: one micro-step; micro alone: one micro-step;
/// accumulation alone or nothing: refused.
BatchAnswer solve_batch(const BatchGiven& given);

}  // namespace dsj::dsconfig

// A training row as the model sees it.
#pragma once

#include <cstdint>
#include <vector>

namespace dsj::data {

inline constexpr int32_t kIgnoredLabel = -100;

/// Labels stand beside their own token (the trainer shifts); kIgnoredLabel: no loss there.
struct Sample {
  std::vector<int32_t> input_ids, labels;  ///< of one length
};

enum class RowKind { Alpaca, Tokens, Chat };

}  // namespace dsj::data

// A training row as the model sees it.
#pragma once

#include <cstdint>
#include <vector>

namespace dsj::data {

inline constexpr int32_t kIgnoredLabel = -100;

/// A label stands beside its own token; the model shifts. kIgnoredLabel: no loss there.
struct Sample {
  std::vector<int32_t> input_ids, labels;  ///< of the same length
};

/// The forms that rows.h reads.
enum class RowKind { Alpaca, Tokens, Chat, Text, Prompt, ChatPrompt, Segments };
constexpr RowKind kLastRowKind = RowKind::Segments;
/// Rows that a chat template renders.
constexpr bool is_chat(RowKind kind) {
  return kind == RowKind::Chat || kind == RowKind::ChatPrompt;
}

}  // namespace dsj::data

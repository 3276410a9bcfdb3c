// A training row as the model sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dsj::data {

inline constexpr int32_t kIgnoredLabel = -100;

/// labels[i] belongs to input_ids[i]; the model shifts. kIgnoredLabel: no loss at this token.
struct Sample {
  std::vector<int32_t> input_ids, labels;  ///< of equal length
  /// For a pair (RowAim::Pairs), which is two rows end to end: the start of the second row, the
  /// prompt with the rejected answer. 0 if the sample is one row.
  int64_t second = 0;
  /// For a pair whose chosen row's prompt is learned too: the start of the answer in that row.
  /// -1 if the prompt is not learned.
  int64_t answer = -1;
  /// For a pair whose rows are scored: the margin by which the chosen row's score should exceed
  /// the other. Each row's only label is then at the token that is scored. nullopt if rows are
  /// not scored.
  std::optional<double> margin;
  /// The reference values of the answers that are judged as a whole; the caller fills it (batch.h).
  std::vector<double> reference;
  /// For a marked answer (RowAim::Marked): whether it is good. nullopt for other rows.
  std::optional<bool> good;
  /// For a marked answer, if Dataset::rotate_answers was called: the row's prompt with another
  /// row's answer. At most one sample.
  std::vector<Sample> beside;
};

/// What rows are read for. A file with rows for another aim is refused.
enum class RowAim {
  Answers,  ///< to learn their answers
  Texts,    ///< to learn every token of texts
  Pairs,    ///< to compare two answers to one prompt: prompt, chosen, rejected
  Marked,   ///< to judge answers marked good or bad, or each answer of a pair
};

/// The forms that rows.h reads.
enum class RowKind { Alpaca, Tokens, Chat, Text, Prompt, ChatPrompt, Segments };
constexpr RowKind kLastRowKind = RowKind::Segments;
/// Rows that a chat template renders.
constexpr bool is_chat(RowKind kind) {
  return kind == RowKind::Chat || kind == RowKind::ChatPrompt;
}

}  // namespace dsj::data

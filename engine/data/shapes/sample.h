// A training row as the model sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dsj::data {

inline constexpr int32_t kIgnoredLabel = -100;

/// A label stands beside its own token; the model shifts. kIgnoredLabel: no loss there.
struct Sample {
  std::vector<int32_t> input_ids, labels;  ///< of the same length
  /// Of a pair (RowAim::Pairs), two rows end to end: where the second begins, the prompt with the
  /// rejected answer. 0: one row.
  int64_t second = 0;
  /// Of a pair whose first row's prompt is learned too: where in that row the answer begins. -1: it
  /// is not.
  int64_t answer = -1;
  /// Of a pair whose rows are scored: by how much the chosen one's score is to be above the other's. The
  /// only label of each row is then at the token whose score counts. nullopt: rows are not scored.
  std::optional<double> margin;
  /// Of an answer that is judged as a whole: of each of its parts, by the caller (batch.h).
  std::vector<double> reference;
  /// Of an answer that is marked (RowAim::Marked): whether it is good. nullopt: no answer is.
  std::optional<bool> good;
  /// Of a marked answer, if Dataset::rotate_answers asked for it: the row's prompt with another row's
  /// answer. One sample or none.
  std::vector<Sample> beside;
};

/// What rows are read for. A file of another one's rows is refused.
enum class RowAim {
  Answers,  ///< to learn their answers
  Texts,    ///< to learn every token of texts
  Pairs,    ///< to compare two answers to one prompt: prompt, chosen, rejected
  Marked,   ///< to judge answers that a label marks good or bad; of a pair each answer by itself
};

/// The forms that rows.h reads.
enum class RowKind { Alpaca, Tokens, Chat, Text, Prompt, ChatPrompt, Segments };
constexpr RowKind kLastRowKind = RowKind::Segments;
/// Rows that a chat template renders.
constexpr bool is_chat(RowKind kind) {
  return kind == RowKind::Chat || kind == RowKind::ChatPrompt;
}

}  // namespace dsj::data

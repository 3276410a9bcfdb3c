// One row of a data file: whether it is valid, and what it becomes. Internal to engine/data;
// callers use dataset.h.
#pragma once

#include <cstdint>
#include <expected>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/result.h"
#include "engine/data/chat.h"
#include "engine/data/sample.h"
#include "engine/data/tokenizer.h"

namespace dsj::data {

/// What is wrong with a row: the field ("labels[3]"; empty for the row itself) and why.
struct RowProblem {
  std::string field, what;
};

/// The kind that a row's fields show. A problem: they show none, or one that is not built.
std::expected<RowKind, RowProblem> row_kind(const nlohmann::json& row);

std::optional<RowProblem> check_alpaca(const nlohmann::json& row);
std::optional<RowProblem> check_chat(const nlohmann::json& row);
std::optional<RowProblem> check_tokens(const nlohmann::json& row, int64_t vocab_size);

struct Cut {
  Sample sample;
  bool truncated = false;
};
/// For a row that was checked.
Cut tokens_sample(const nlohmann::json& row, int64_t max_seq_length);
/// As Stanford does it: prompt, output and eos in one text. The labels of as many tokens as the
/// prompt alone has are ignored; both counts are cut to max_seq_length.
Result<Cut> alpaca_sample(const nlohmann::json& row, const Tokenizer& tokenizer,
                          int64_t max_seq_length);

/// A row's conversation. ShareGPT's speakers become roles.
std::vector<Turn> chat_turns(const nlohmann::json& row);
/// All turns in one text. Only the assistant's turns, and the tokens that end them, have labels. A
/// token that starts before such a turn and reaches into it has none.
Result<Cut> chat_sample(const nlohmann::json& row, const Tokenizer& tokenizer,
                        ChatTemplate chat_template, int64_t max_seq_length);

}  // namespace dsj::data

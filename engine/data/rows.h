// One row of a data file: is it what it should be, and what does it become. Internal to
// engine/data; dataset.h is what callers use.
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

/// The kind that a row's fields tell; a problem when they tell none, or one not built here.
std::expected<RowKind, RowProblem> row_kind(const nlohmann::json& row);

std::optional<RowProblem> check_alpaca(const nlohmann::json& row);
std::optional<RowProblem> check_chat(const nlohmann::json& row);
std::optional<RowProblem> check_tokens(const nlohmann::json& row, int64_t vocab_size);

struct Cut {
  Sample sample;
  bool truncated = false;
};
/// Of a row that was checked.
Cut tokens_sample(const nlohmann::json& row, int64_t max_seq_length);
/// Stanford's way: prompt + output + eos in one text; the labels of as many tokens as the prompt
/// has alone are ignored; both are cut to max_seq_length.
Result<Cut> alpaca_sample(const nlohmann::json& row, const Tokenizer& tokenizer,
                          int64_t max_seq_length);

/// The conversation of a row, ShareGPT's speakers by their roles.
std::vector<Turn> chat_turns(const nlohmann::json& row);
/// All turns in one text; labels of the assistant's turns and of the tokens that end them, of no
/// other. The token in which such a turn begins in the middle is not learned from.
Result<Cut> chat_sample(const nlohmann::json& row, const Tokenizer& tokenizer,
                        ChatTemplate chat_template, int64_t max_seq_length);

}  // namespace dsj::data

// One row of a data file: whether it is valid, and what it becomes. Internal to engine/data;
// callers use dataset.h.
#pragma once

#include <cstdint>
#include <expected>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/result.h"
#include "engine/data/chat/chat.h"
#include "engine/data/chat/learning.h"
#include "engine/data/shapes/row_fields.h"
#include "engine/data/shapes/row_shape.h"
#include "engine/data/shapes/sample.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace dsj::data {

/// What is wrong with a row of its kind, by the shapes' names.
std::optional<RowProblem> check_row(const ShapedRow& shaped, int64_t vocab_size);
/// A row of text without any, as corpora have them between paragraphs: there is nothing to read.
bool is_empty_text(const ShapedRow& shaped);
/// A token that the model cannot have. The tokenizer produced it.
std::optional<RowProblem> outside_vocabulary(const Sample& sample, const Tokenizer& tokenizer,
                                             int64_t vocab_size);
std::optional<RowProblem> check_alpaca(const nlohmann::json& row);
std::optional<RowProblem> check_chat(const nlohmann::json& row);
std::optional<RowProblem> check_tokens(const nlohmann::json& row, int64_t vocab_size);

struct Cut {
  Sample sample;
  bool truncated = false;
};
/// What a row becomes; it was checked. `tokenizer` may be null for Tokens. Text: every token is a target,
/// eos behind it. Prompt and ChatPrompt, as TRL: the tokens from where the whole and the prompt alone
/// differ are targets. Segments, as axolotl: each is tokenized by itself, nothing is added.
Result<Cut> row_sample(const ShapedRow& shaped, const Tokenizer* tokenizer,
                       const ChatTemplate& chat_template, const Learning& learning,
                       int64_t max_seq_length);
struct PairLengths {
  int64_t max_prompt_length = 0;  ///< a longer prompt keeps its last tokens; 0: any
  int64_t max_length = 0;         ///< of each of the two rows
  bool keeps_end = false;         ///< of a longer row, instead of its begin
  bool prompt_learned = false;    ///< the chosen row's, too; eos is behind every answer (orpo)
  /// Rows are scored, and never cut: their margin is Sample::margin, and the score that counts is that of
  /// the last token that does not pad, as in transformers.
  bool scored = false;
};
/// What a pair becomes; it was checked. As TRL: a row's answer begins where the tokens of the prompt
/// alone and those of prompt and answer differ, in both rows at the place where the first of them does.
/// Text and Stanford's prompt: eos is behind an answer that does not end with it.
Result<Cut> pair_sample(const ShapedRow& pair, const Tokenizer& tokenizer,
                        const ChatTemplate& chat_template, const PairLengths& lengths);
/// What a marked row's answer and its prompt are in tokens; it was checked. As TRL: the answer begins where
/// the tokens of the prompt alone and those of prompt and answer differ. eos as of pairs.
struct JudgedIds {
  std::vector<int32_t> prompt, answer;
};
Result<JudgedIds> judged_ids(const ShapedRow& row, const Tokenizer& tokenizer,
                             const ChatTemplate& chat_template);
/// A prompt and an answer as one row, cut as pairs are.
Cut judged_sample(const std::vector<int32_t>& prompt, const std::vector<int32_t>& answer, bool good,
                  const PairLengths& lengths);
/// A ChatPrompt row's two texts. BadInput: the template has no form for the turns.
struct PromptAndWhole {
  std::string prompt, whole;
};
Result<PromptAndWhole> chat_prompt_texts(const ShapedRow& shaped,
                                         const ChatTemplate& chat_template);
Cut tokens_sample(const nlohmann::json& row, int64_t max_seq_length);
/// As Stanford does it: prompt, output and eos in one text. The labels of as many tokens as the
/// prompt alone has are ignored; both counts are cut to max_seq_length. A row with a history is
/// several such turns (alpaca_pieces), each answer learned. `learning` may choose others.
Result<Cut> alpaca_sample(const nlohmann::json& row, const Tokenizer& tokenizer,
                          const Learning& learning, int64_t max_seq_length);
/// A row's prompts and answers in turn: the row's history (LLaMA-Factory's), then the row itself.
/// `eos` ends each answer; an empty line lies between two turns.
std::vector<ChatPiece> alpaca_pieces(const nlohmann::json& row, const std::string& eos);

/// A good question and answer as turns: kind Chat, its messages are the history's pairs, instruction and
/// input with a line end between, and the answer, as LLaMA-Factory makes them; system and tools stay
/// beside them. Any other row as it is.
ShapedRow as_turns(ShapedRow shaped);

struct Conversation {
  std::vector<Turn> turns;
  jinja::Value tools = jinja::Value::none();  ///< the row's list
};
/// A row's conversation, the row's "system" before it where the first turn is none. ShareGPT's
/// speakers become roles. The assistant's turns are learned, but not those with weight 0 (OpenAI) or
/// train false (axolotl). `text`: the row as the file has it, whose keys' order templates show.
/// BadInput: tools that are text hold no JSON list.
Result<Conversation> conversation_of(const nlohmann::json& row, std::string_view text);
/// A conversation's text, and which parts of it are learned. Where every token is, nothing need be
/// known of the answers.
Result<std::vector<ChatPiece>> chat_pieces(Conversation told, const ChatTemplate& chat_template,
                                           const Learning& learning);
/// All turns in one text. Only the assistant's turns, and the tokens that end them, have labels, if
/// `learning` chooses no others. A token that starts before such a turn and reaches into it has one
/// where the piece says so (ChatPiece::joins).
Result<Cut> chat_sample(const nlohmann::json& row, std::string_view text,
                        const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                        const Learning& learning, int64_t max_seq_length);
/// Pieces as one text, tokenized once and no further than it is kept; what chat_sample() and rows
/// with a history become. `special`: with what the post-processor adds around a text.
Result<Cut> pieces_sample(std::span<const ChatPiece> pieces, const Tokenizer& tokenizer,
                          bool special, int64_t max_seq_length);

}  // namespace dsj::data

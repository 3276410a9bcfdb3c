// Checks one row of a data file and converts it to a sample. Internal to engine/data; callers
// use dataset.h.
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

/// Returns what is wrong with a row of its kind, with the shapes' field names.
std::optional<RowProblem> check_row(const ShapedRow& shaped, int64_t vocab_size);
/// Whether a text row is empty, as between the paragraphs of corpora.
bool is_empty_text(const ShapedRow& shaped);
/// Reports a token that the tokenizer produces but the model lacks.
std::optional<RowProblem> outside_vocabulary(const Sample& sample, const Tokenizer& tokenizer,
                                             int64_t vocab_size);
std::optional<RowProblem> check_alpaca(const nlohmann::json& row);
std::optional<RowProblem> check_chat(const nlohmann::json& row);
std::optional<RowProblem> check_tokens(const nlohmann::json& row, int64_t vocab_size);

struct Cut {
  Sample sample;
  bool truncated = false;
};
/// The sample of a checked row. `tokenizer` may be null for Tokens. Text: every token is a
/// target, and eos is added. Prompt and ChatPrompt, as in TRL: targets are the tokens from
/// where the whole differs from the prompt alone. Segments, as in axolotl: each is tokenized
/// separately, nothing is added.
Result<Cut> row_sample(const ShapedRow& shaped, const Tokenizer* tokenizer,
                       const ChatTemplate& chat_template, const Learning& learning,
                       int64_t max_seq_length);
struct PairLengths {
  int64_t max_prompt_length = 0;  ///< a longer prompt keeps its last tokens; 0 means no limit
  int64_t max_length = 0;         ///< for each of the two rows
  bool keeps_end = false;         ///< a longer row keeps its end, not its begin
  bool prompt_learned = false;    ///< the chosen row's, too; every answer ends with eos (orpo)
  /// Rows are scored and never cut: their margin is Sample::margin, and the score is that of
  /// the last token that is not padding, as in transformers.
  bool scored = false;
};
/// The sample of a checked pair. As in TRL, a row's answer begins where the tokens of prompt
/// and answer differ from those of the prompt alone; the smaller position counts for both rows.
/// With texts and Stanford's prompt, eos is added to an answer that does not end with it.
Result<Cut> pair_sample(const ShapedRow& pair, const Tokenizer& tokenizer,
                        const ChatTemplate& chat_template, const PairLengths& lengths);
/// The tokens of a checked marked row. As in TRL, the answer begins where the tokens of prompt
/// and answer differ from those of the prompt alone. eos is added as for pairs.
struct JudgedIds {
  std::vector<int32_t> prompt, answer;
};
Result<JudgedIds> judged_ids(const ShapedRow& row, const Tokenizer& tokenizer,
                             const ChatTemplate& chat_template);
/// Joins a prompt and an answer to one row, cut like pairs.
Cut judged_sample(const std::vector<int32_t>& prompt, const std::vector<int32_t>& answer, bool good,
                  const PairLengths& lengths);
/// A ChatPrompt row's two texts. Errors: BadInput if the template does not support the turns.
struct PromptAndWhole {
  std::string prompt, whole;
};
Result<PromptAndWhole> chat_prompt_texts(const ShapedRow& shaped,
                                         const ChatTemplate& chat_template);
/// A row of ids without its padding. Without labels, TRL's masks choose the targets; trainOnInputs
/// ignores completion_mask, as completion_only_loss False does there.
Cut tokens_sample(const nlohmann::json& row, const Learning& learning, int64_t max_seq_length);
/// As in Stanford's code: prompt, output and eos are one text. As many labels as the prompt
/// alone has tokens are ignored; both counts are cut to max_seq_length. A row with a history is
/// several such turns (alpaca_pieces), each answer learned. `learning` may choose others.
Result<Cut> alpaca_sample(const nlohmann::json& row, const Tokenizer& tokenizer,
                          const Learning& learning, int64_t max_seq_length);
/// A row's prompts and answers in turn: first its history (LLaMA-Factory's), then the row
/// itself. `eos` ends each answer; an empty line separates turns.
std::vector<ChatPiece> alpaca_pieces(const nlohmann::json& row, const std::string& eos);

/// Converts a valid question and answer to turns, as LLaMA-Factory does: kind Chat, with
/// messages for the pairs of the history, for instruction and input (separated by a line end),
/// and for the answer; system and tools stay next to them. Any other row is returned unchanged.
ShapedRow as_turns(ShapedRow shaped);

struct Conversation {
  std::vector<Turn> turns;
  jinja::Value tools = jinja::Value::none();  ///< the row's list
  jinja::Value kwargs{};                      ///< its chat_template_kwargs
};
/// A row's conversation, with the row's "system" first if the first turn is not a system
/// message. ShareGPT's speakers become roles. The assistant's turns are learned, except with
/// weight 0 (OpenAI) or train false (axolotl). `text`: the row as in the file, because templates
/// show the order of its keys. Errors: BadInput if tools are a text that is not a JSON list.
Result<Conversation> conversation_of(const nlohmann::json& row, std::string_view text);
/// A conversation's text with its learned parts. If every token is learned, the answers need
/// not be located.
Result<std::vector<ChatPiece>> chat_pieces(Conversation told, const ChatTemplate& chat_template,
                                           const Learning& learning);
/// All turns in one text. Only the assistant's turns and the tokens that end them have labels,
/// unless `learning` chooses others. A token that starts before such a turn and extends into it
/// has a label if the piece says so (ChatPiece::joins).
Result<Cut> chat_sample(const nlohmann::json& row, std::string_view text,
                        const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                        const Learning& learning, int64_t max_seq_length);
/// Joins pieces to one text, which is tokenized once and not beyond max_seq_length; used by
/// chat_sample() and for rows with a history. `special`: add the post-processor's tokens.
Result<Cut> pieces_sample(std::span<const ChatPiece> pieces, const Tokenizer& tokenizer,
                          bool special, int64_t max_seq_length);

}  // namespace dsj::data

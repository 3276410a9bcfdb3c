// Finds the shape of a row by its fields, under the names that published data sets use, and
// converts the row to the one form that rows.h reads for each kind. Internal to engine/data.
//
//   shape                          fields                                          becomes
//   alpaca                         instruction, output (input, system, history)    Alpaca
//   question, answer               instruction | query | question | prompt |       Alpaca: instruction,
//     (Dolly, MetaMathQA, GSM8K)   input | inputs | problem; output | response |   input, output, system
//                                  answer | target | targets | solution; context
//   messages, conversations        a list of turns                                 Chat
//   conversation, dialogue,        a list of turns, or of exchanges: {human,       Chat
//     dialog, items, turns         assistant}, {system, input, output}
//   prompt, completion             texts (TRL)                                     Prompt
//   prompt, completion (turns)     lists of turns (TRL)                            ChatPrompt: messages,
//                                                                                  prompt's length
//   text                           a text (TRL, continued pretraining)             Text
//   segments                       [{text, label}] (axolotl's input_output)        Segments
//   tokens                         input_ids, labels | completion_mask |           Tokens
//                                  assistant_masks; pretrain: input_ids alone
//
// For pairs (RowAim::Pairs), a row has two answers and becomes two rows of one kind:
//
//   prompt, chosen, rejected       texts                                           Prompt
//   prompt, chosen, rejected       turns; the prompt may be a text, an answer      ChatPrompt
//                                  one turn (LLaMA-Factory: messages before them)
//   chosen, rejected               texts or turns with a common beginning         the same
//   question, chosen, rejected     as in question, answer                          Alpaca
//
// For marked answers (RowAim::Marked), a row has a label (row_mark.h), a prompt and an answer,
// in one of the first four shapes (messages become ChatPrompt), or it is a pair.
//
// A turn with a call (function_call; its text is the JSON of {name, arguments} or a list of
// these) becomes an assistant's turn with tool_calls.
#pragma once

#include <expected>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/data/shapes/row_fields.h"
#include "engine/data/shapes/row_names.h"
#include "engine/data/shapes/sample.h"
#include "engine/data/shapes/shaped_row.h"

namespace dsj::data {

/// The shape of rows that already have the fields of their kind, Alpaca.
inline constexpr char kAlpacaShape[] = "alpaca (instruction, output)";

/// `text`: a row as JSON. RowProblem if it is not an object, if a field is refused
/// (row_fields.h), or if no shape has its fields.
std::expected<ShapedRow, RowProblem> shaped_row(const RowNames& names, std::string_view text,
                                                RowAim aim = RowAim::Answers);
/// The same for a parsed row.
std::expected<ShapedRow, RowProblem> shaped_row(const nlohmann::json& row,
                                                RowAim aim = RowAim::Answers);

}  // namespace dsj::data

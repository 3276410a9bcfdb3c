// What becomes of each field of a row: it is read (rows.h), it is refused by its name, or nothing
// reads it. A field that holds null, "", [] or {} says nothing and counts as not there. Internal to
// engine/data; callers use dataset.h.
//
//   refused                                  because
//   chosen..., rejected..., ..._chosen,      preference rows: no answer of theirs is just learned;
//                                            read for pairs (pair_shape.h), chosen and rejected are
//     preferred_output, better_response_id,
//     response_0 beside response_1 ...
//   label or kto_tag: false, 0, "False"      KTO's mark of an answer that must not be learned, read for
//                                            marked answers (row_mark.h); a label beside a "text" is a class
//   images, videos, audios (and singular)    only text is read
//   functions; a turn's function_call        the old form of tools and tool_calls
//   a turn's train_detail                    (axolotl) parts of a turn
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/shapes/sample.h"

namespace dsj::data {

/// What is wrong with a row: the field ("labels[3]"; empty for the row itself) and why.
struct RowProblem {
  std::string field, what;
};

/// Of a ChatPrompt row: how many of its messages are the prompt.
inline constexpr char kPromptTurns[] = "prompt_turns";

/// "a number": what a value is, for messages.
std::string kind_of(const nlohmann::json& value);
/// Whether `object` has the field, and it holds something.
bool holds(const nlohmann::json& object, const char* field);

/// The first refused field of a row.
std::optional<RowProblem> refused_field(const nlohmann::json& row);
/// The first refused field of a turn; `field` is the turn's own name of it.
std::optional<RowProblem> refused_turn_field(const nlohmann::json& turn);
/// Why a part of a turn's content that is no text is refused. `type`: the part's.
std::string refused_part(const std::string& type);

/// The field that lists a conversation's turns: messages, else conversations.
const char* turns_field(const nlohmann::json& row);
/// A speaker's role in templates: "assistant" of "gpt". nullopt: not one of the known speakers.
std::optional<std::string> role_of(const std::string& speaker);
/// The names of a turn's speaker and text. ShareGPT's are from and value.
const char* role_field(const nlohmann::json& row, const nlohmann::json& turn);
const char* content_field(const nlohmann::json& row, const nlohmann::json& turn);
/// Whether the conversation gets its system message from the row's "system": its first turn is none.
bool takes_system(const nlohmann::json& row);

/// The fields of a row that hold something and that nothing reads, each once: "id",
/// "messages[].name", which a chat template may read yet. So are the marks of other media in a text: "<image> in messages[].content".
/// Precondition: the row was checked (rows.h).
std::vector<std::string> unread_fields(const nlohmann::json& row, RowKind kind);

}  // namespace dsj::data

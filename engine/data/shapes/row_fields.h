// Classifies each field of a row: it is read (rows.h), refused by name, or unread. A field that
// holds null, "", [] or {} counts as missing. Internal to engine/data; callers use dataset.h.
//
//   refused                                  because
//   chosen..., rejected..., ..._chosen,      preference rows, not answers to learn; pairs are
//     preferred_output, better_response_id,  read from chosen and rejected (pair_shape.h)
//     response_0 beside response_1 ...
//   label or kto_tag: false, 0, "False"      KTO's mark of an answer not to be learned; read for
//                                            marked answers (row_mark.h); beside "text": a class
//   images, videos, audios (and singular)    only text is read
//   functions; a turn's function_call        the old form of tools and tool_calls
//   a turn's train_detail                    (axolotl) marks parts of a turn
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/shapes/sample.h"

namespace dsj::data {

/// What is wrong with a row: the field ("labels[3]"; empty if it is the row itself) and why.
struct RowProblem {
  std::string field, what;
};

/// Fields of a turn that say if it is learned: OpenAI's (0 or 1), axolotl's, ms-swift's and
/// AgentInstruct's, LLaMA-Factory's.
inline constexpr std::array kLearnedFields = {"weight", "train", "loss", "loss_weight"};

/// TRL's field of a chat row: more variables for the template, an object.
inline constexpr char kTemplateKwargs[] = "chat_template_kwargs";
bool has_template_kwargs(const nlohmann::json& row);

/// Field of a ChatPrompt row: the number of its messages that are the prompt.
inline constexpr char kPromptTurns[] = "prompt_turns";

/// The kind of a value for messages, such as "a number".
std::string kind_of(const nlohmann::json& value);
/// Whether `object` has the field, and the field is not empty.
bool holds(const nlohmann::json& object, const char* field);

/// Returns the first refused field of a row.
std::optional<RowProblem> refused_field(const nlohmann::json& row);
/// Returns the first refused field of a turn; `field` is its name within the turn.
std::optional<RowProblem> refused_turn_field(const nlohmann::json& turn);
/// Says why a part of a turn's content is refused. `type`: the type of the part; not text.
std::string refused_part(const std::string& type);

/// The field that lists a conversation's turns: messages, else conversations.
const char* turns_field(const nlohmann::json& row);
/// A speaker's role in templates, such as "assistant" for "gpt". nullopt if the speaker is unknown.
std::optional<std::string> role_of(const std::string& speaker);
/// The fields with a turn's speaker and text. ShareGPT's are from and value.
const char* role_field(const nlohmann::json& row, const nlohmann::json& turn);
const char* content_field(const nlohmann::json& row, const nlohmann::json& turn);
/// Whether the row's "system" becomes the system message: the first turn is not a system message.
bool takes_system(const nlohmann::json& row);

/// The fields of a row that hold something and that nothing reads, each once: "id",
/// "messages[].name" (which a chat template may read). Includes media marks in texts, such as
/// "<image> in messages[].content". Precondition: the row was checked (rows.h).
std::vector<std::string> unread_fields(const nlohmann::json& row, RowKind kind);

}  // namespace dsj::data

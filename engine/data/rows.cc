#include "engine/data/rows.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "engine/data/shapes/prompt.h"

namespace dsj::data {
namespace {

using nlohmann::json;

/// `needed`: if false, a missing or null field counts as an empty text.
std::optional<RowProblem> check_text(const json& row, const char* field, bool needed) {
  const auto found = row.find(field);
  if (found == row.end() && needed) return RowProblem{field, "is missing"};
  if (!needed && (found == row.end() || found->is_null())) return std::nullopt;
  if (!found->is_string()) return RowProblem{field, "is " + kind_of(*found) + ", expected text"};
  return std::nullopt;
}

/// The text of an optional field that was checked; empty if it is missing.
std::string text_of(const json& row, const char* field) {
  return holds(row, field) ? row[field].get<std::string>() : std::string();
}

/// Checks that the field is a list of integers that all pass `is_allowed`.
template <typename Allowed>
std::optional<RowProblem> check_ids(const json& row, const std::string& field,
                                    const std::string& allowed, Allowed is_allowed) {
  const auto found = row.find(field);
  if (found == row.end()) return RowProblem{field, "is missing"};
  if (!found->is_array()) {
    return RowProblem{field, "is " + kind_of(*found) + ", expected a list of token ids"};
  }
  for (std::size_t i = 0; i < found->size(); ++i) {
    const json& id = (*found)[i];
    const std::string place = field + "[" + std::to_string(i) + "]";
    if (!id.is_number_integer()) {
      return RowProblem{place, "is " + kind_of(id) + ", expected " + allowed};
    }
    const bool fits = !id.is_number_unsigned() || id.get<uint64_t>() <= INT32_MAX;
    if (!fits || !is_allowed(id.get<int64_t>())) {
      return RowProblem{place, "is " + id.dump() + ", expected " + allowed};
    }
  }
  return std::nullopt;
}

bool given(const json& row, const char* field) {
  const auto found = row.find(field);
  return found != row.end() && !found->is_null();
}

/// Checks a list of 0 and 1, or of booleans, beside the ids.
std::optional<RowProblem> check_mask(const json& row, const char* field) {
  const json& mask = row[field];
  if (!mask.is_array())
    return RowProblem{field, "is " + kind_of(mask) + ", expected a list of 0 and 1"};
  for (size_t i = 0; i < mask.size(); ++i)
    if (!mask[i].is_boolean() && mask[i] != 0 && mask[i] != 1)
      return RowProblem{field + ("[" + std::to_string(i) + "]"),
                        "is " + mask[i].dump() + ", expected 0 or 1"};
  if (mask.size() != row["input_ids"].size())
    return RowProblem{field, "is not as long as input_ids"};
  return std::nullopt;
}

bool is_set(const json& flag) {
  return flag == true || flag == 1;
}

/// How many ids a checked row has before its padding.
size_t unpadded(const json& row) {
  if (!given(row, "attention_mask")) return row["input_ids"].size();
  return static_cast<size_t>(std::ranges::find_if_not(row["attention_mask"], is_set) -
                             row["attention_mask"].begin());
}

/// Only padding at the end changes no number of the other tokens.
std::optional<RowProblem> check_padding(const json& row) {
  if (!given(row, "attention_mask")) return std::nullopt;
  if (auto problem = check_mask(row, "attention_mask")) return problem;
  const json& mask = row["attention_mask"];
  const size_t length = unpadded(row);
  const auto place = [](const char* field, size_t i) {
    return field + ("[" + std::to_string(i) + "]");
  };
  if (length == 0)
    return RowProblem{
        place("attention_mask", 0),
        "is 0, expected 1 (only padding at the end of a row is read: leave out that at its begin)"};
  if (std::any_of(mask.begin() + static_cast<std::ptrdiff_t>(length), mask.end(), is_set))
    return RowProblem{place("attention_mask", length),
                      "is 0 before a 1 (only padding at the end of a row is read)"};
  for (size_t i = length; i < mask.size() && given(row, "labels"); ++i)
    if (row["labels"][i] != kIgnoredLabel)
      return RowProblem{place("labels", i), "is " + row["labels"][i].dump() +
                                                " at padding (attention_mask 0), expected -100"};
  return std::nullopt;
}

/// TRL's columns beside input_ids in place of labels: a token is a target if all say 1.
constexpr std::array kTargetMasks = {"completion_mask", "assistant_masks"};

std::optional<RowProblem> check_targets(const json& row) {
  bool any = false;
  for (const char* field : kTargetMasks) {
    if (!given(row, field)) continue;
    if (auto problem = check_mask(row, field)) return problem;
    any = true;
  }
  if (any) return std::nullopt;
  return RowProblem{
      "labels",
      "is missing (add labels, or TRL's completion_mask or assistant_masks; objective "
      "pretrain learns every token)"};
}

std::optional<RowProblem> check_history(const json& row) {
  if (!holds(row, "history")) return std::nullopt;
  const json& history = row["history"];
  if (!history.is_array()) {
    return RowProblem{"history",
                      "is " + kind_of(history) + ", expected a list of [question, answer]"};
  }
  for (size_t i = 0; i < history.size(); ++i) {
    const json& pair = history[i];
    if (pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string()) continue;
    return RowProblem{"history[" + std::to_string(i) + "]",
                      "is not [question, answer], both of them text"};
  }
  return std::nullopt;
}

}  // namespace

std::optional<RowProblem> check_alpaca(const json& row) {
  if (auto problem = check_text(row, "instruction", true)) return problem;
  if (holds(row, "tools"))
    return RowProblem{"tools",
                      "holds tools, which Stanford's prompt does not support: write chat rows"};
  for (const char* field : {"input", "system"})
    if (auto problem = check_text(row, field, false)) return problem;
  if (auto problem = check_history(row)) return problem;
  return check_text(row, "output", true);
}

ShapedRow as_turns(ShapedRow shaped) {
  if (shaped.kind != RowKind::Alpaca) return shaped;
  json plain = shaped.row;
  plain.erase("tools");  // a chat template may support them
  if (check_alpaca(plain)) return shaped;
  using nlohmann::ordered_json;
  ordered_json row = ordered_json::parse(shaped.text), turns = ordered_json::array();
  const auto turn = [&](const char* role, std::string content) {
    turns.push_back({{"role", role}, {"content", std::move(content)}});
  };
  if (holds(plain, "history")) {
    for (const json& pair : plain["history"]) {
      turn("user", pair[0].get<std::string>());
      turn("assistant", pair[1].get<std::string>());
    }
  }
  std::string question = text_of(plain, "instruction");
  const std::string input = text_of(plain, "input");
  if (!question.empty() && !input.empty()) question += "\n";
  turn("user", question + input);
  turn("assistant", text_of(plain, "output"));
  for (const char* field : {"instruction", "input", "output", "history"}) row.erase(field);
  row["messages"] = std::move(turns);
  shaped.kind = RowKind::Chat;
  shaped.text = row.dump();
  shaped.row = json::parse(shaped.text);
  return shaped;
}

std::optional<RowProblem> check_tokens(const json& row, int64_t vocab_size) {
  const std::string ids = "an id from 0 to " + std::to_string(vocab_size - 1);
  const auto is_id = [vocab_size](int64_t id) { return id >= 0 && id < vocab_size; };
  if (auto problem = check_ids(row, "input_ids", ids, is_id)) return problem;
  const std::size_t length = row["input_ids"].size();
  if (length == 0) return RowProblem{"input_ids", "is empty"};
  if (!given(row, "labels")) {
    if (auto problem = check_targets(row)) return problem;
    return check_padding(row);
  }
  if (auto problem = check_ids(row, "labels", ids + " or -100",
                               [&](int64_t id) { return id == kIgnoredLabel || is_id(id); })) {
    return problem;
  }
  if (row["labels"].size() != length) {
    return RowProblem{"labels", "has " + std::to_string(row["labels"].size()) +
                                    " entries, input_ids has " + std::to_string(length)};
  }
  return check_padding(row);
}

// ---- chat

namespace {

std::string unknown_role(const json& name) {
  return "is " + name.dump() + ", expected system, user, assistant or tool";
}

/// Checks a turn's content: a text, or OpenAI's list of text parts.
std::optional<RowProblem> check_content(const json& turn, const char* field) {
  const auto content = turn.find(field);
  if (content == turn.end() || !content->is_array())
    return check_text(turn, field, !holds(turn, "tool_calls"));
  for (size_t i = 0; i < content->size(); ++i) {
    const json& part = (*content)[i];
    const std::string place = std::string(field) + "[" + std::to_string(i) + "]";
    if (!part.is_object()) return RowProblem{place, "is " + kind_of(part) + ", expected an object"};
    if (auto problem = check_text(part, "type", true)) {
      return RowProblem{place + ".type", problem->what};
    }
    const std::string type = part["type"].get<std::string>();
    if (type != "text") return RowProblem{place, refused_part(type)};
    if (auto problem = check_text(part, "text", true)) {
      return RowProblem{place + ".text", problem->what};
    }
  }
  return std::nullopt;
}

std::string content_of(const json& turn, const char* field) {
  const json content = turn.value(field, json());
  if (content.is_null()) return {};
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  for (const json& part : content) text += part["text"].get_ref<const std::string&>();
  return text;
}

/// Checks the fields that say if a turn is learned.
std::optional<RowProblem> check_learned(const json& turn, bool assistant) {
  for (const char* field : kLearnedFields) {
    if (!holds(turn, field)) continue;
    const json& value = turn[field];
    const bool yes = value == json(1) || value == json(true);
    if (!yes && value != json(0) && value != json(false))
      return RowProblem{field, "is " + value.dump() + ", expected 0 or 1, true or false"};
    if (yes && !assistant)
      return RowProblem{
          field, "is " + value.dump() + ", but only turns of the assistant are learned from here"};
  }
  return std::nullopt;
}

bool is_learned(const json& turn) {
  return std::ranges::none_of(kLearnedFields, [&](const char* field) {
    return holds(turn, field) && (turn[field] == json(0) || turn[field] == json(false));
  });
}

std::optional<RowProblem> check_turn(const json& row, const json& turn) {
  if (!turn.is_object()) return RowProblem{"", "is " + kind_of(turn) + ", expected an object"};
  if (auto problem = refused_turn_field(turn)) return problem;
  const char* role_name = role_field(row, turn);
  if (auto problem = check_text(turn, role_name, true)) return problem;
  const auto role = role_of(turn[role_name].get<std::string>());
  if (!role) return RowProblem{role_name, unknown_role(turn[role_name])};
  if (auto problem = check_content(turn, content_field(row, turn))) return problem;
  return check_learned(turn, *role == "assistant");
}

}  // namespace

std::optional<RowProblem> check_chat(const json& row) {
  const char* name = turns_field(row);
  const json& list = row[name];
  if (!list.is_array() || list.empty()) {
    return RowProblem{
        name, list.is_array() ? "is empty" : "is " + kind_of(list) + ", expected a list of turns"};
  }
  bool answered = false;
  for (size_t i = 0; i < list.size(); ++i) {
    if (const auto problem = check_turn(row, list[i])) {
      const std::string place = std::string(name) + "[" + std::to_string(i) + "]";
      return RowProblem{place + (problem->field.empty() ? "" : ".") + problem->field,
                        problem->what};
    }
    answered = answered || role_of(list[i][role_field(row, list[i])]) == "assistant";
  }
  if (!answered) return RowProblem{name, "has no turn of the assistant to learn from"};
  return check_text(row, "system", false);
}

namespace {

/// A turn of a row, with its fields renamed to those that templates read.
jinja::Value fields_of(const jinja::Value& turn, const std::string& role,
                       std::string_view role_name, std::string_view content_name) {
  jinja::Dict fields;
  for (const auto& [name, value] : turn.dict()->entries()) {
    if (name.bytes() == role_name) {
      fields.set("role", role);
    } else {
      fields.set(name.bytes() == content_name ? jinja::Value("content") : name, value);
    }
  }
  return jinja::make_dict(std::move(fields));
}

}  // namespace

Result<Conversation> conversation_of(const json& row, std::string_view text) {
  DSJ_TRY(const jinja::Value ordered, jinja::value_of_json(text));
  Conversation told;
  if (takes_system(row)) told.turns.push_back({"system", row["system"].get<std::string>()});
  const jinja::Sequence& turns = *ordered.dict()->named(turns_field(row))->sequence();
  size_t place = 0;
  for (const json& turn : row[turns_field(row)]) {
    const char *role_name = role_field(row, turn), *content_name = content_field(row, turn);
    const std::string role = role_of(turn[role_name].get<std::string>()).value_or("");
    told.turns.push_back({role, content_of(turn, content_name),
                          role == "assistant" && is_learned(turn),
                          fields_of(turns.items[place++], role, role_name, content_name)});
  }
  if (has_template_kwargs(row)) told.kwargs = *ordered.dict()->named(kTemplateKwargs);
  if (!holds(row, "tools")) return told;
  told.tools = *ordered.dict()->named("tools");
  if (told.tools.is_str()) {
    DSJ_TRY(told.tools, jinja::value_of_json(std::string(told.tools.bytes())));
  }
  if (told.tools.is_none()) return told;
  if (!told.tools.sequence()) return bad_input("tools: is not a list");
  return told;
}

// ---- samples

Result<Cut> pieces_sample(std::span<const ChatPiece> pieces, const Tokenizer& tokenizer,
                          bool special, int64_t max_seq_length) {
  std::string text;
  std::vector<size_t> ends;  // begin and end of each learned piece, in turn
  std::vector<bool> joins;   // ChatPiece::joins of the learned pieces
  for (const ChatPiece& piece : pieces) {
    if (piece.learned) {
      ends.push_back(text.size());
      joins.push_back(piece.joins);
    }
    text += piece.text;
    if (piece.learned) ends.push_back(text.size());
  }
  EncodeOptions options{.add_special_tokens = special, .max_length = max_seq_length + 1};
  DSJ_TRY(auto found, tokenizer.encode(text, ends, options));
  Cut cut;
  cut.truncated = std::ssize(found.ids) > max_seq_length;
  if (cut.truncated) {
    options.max_length = max_seq_length;
    DSJ_TRY(found, tokenizer.encode(text, ends, options));
  }
  cut.sample.labels.assign(found.ids.size(), kIgnoredLabel);
  for (size_t i = 0; i + 1 < ends.size(); i += 2) {
    const size_t crossing = joins[i / 2] && found.crossed[i] ? 1 : 0;
    for (size_t token = found.firsts[i] - crossing; token < found.firsts[i + 1]; ++token)
      cut.sample.labels[token] = found.ids[token];
  }
  cut.sample.input_ids = std::move(found.ids);
  return cut;
}

Result<std::vector<ChatPiece>> chat_pieces(Conversation told, const ChatTemplate& chat_template,
                                           const Learning& learning) {
  const ChatTemplate form = chat_template.with(told.kwargs);
  if (learning.inputs) {
    DSJ_TRY(std::string text, render_text(form, told.turns, told.tools));
    return std::vector<ChatPiece>{{std::move(text), true}};
  }
  choose_turns(learning, told.turns);
  DSJ_TRY(auto pieces, render_chat(form, told.turns, told.tools));
  return choose_pieces(learning, std::move(pieces), form.specials());
}

Result<Cut> chat_sample(const json& row, std::string_view text, const Tokenizer& tokenizer,
                        const ChatTemplate& chat_template, const Learning& learning,
                        int64_t max_seq_length) {
  DSJ_TRY(Conversation told, conversation_of(row, text));
  DSJ_TRY(const auto pieces, chat_pieces(std::move(told), chat_template, learning));
  // The template has written its own special tokens.
  return pieces_sample(pieces, tokenizer, /*special=*/false, max_seq_length);
}

Cut tokens_sample(const json& row, const Learning& learning, int64_t max_seq_length) {
  Cut cut{.sample = {.input_ids = row["input_ids"].get<std::vector<int32_t>>()}};
  const bool labelled = given(row, "labels");
  cut.sample.labels = labelled ? row["labels"].get<std::vector<int32_t>>() : cut.sample.input_ids;
  for (const char* field : kTargetMasks) {
    const bool whole = learning.inputs && std::string_view(field) == "completion_mask";
    if (labelled || whole || !given(row, field)) continue;
    for (std::size_t i = 0; i < cut.sample.labels.size(); ++i)
      if (!is_set(row[field][i])) cut.sample.labels[i] = kIgnoredLabel;
  }
  cut.sample.input_ids.resize(unpadded(row));
  cut.sample.labels.resize(cut.sample.input_ids.size());
  const auto limit = static_cast<std::size_t>(max_seq_length);
  if (cut.sample.input_ids.size() > limit) {
    cut.truncated = true;
    cut.sample.input_ids.resize(limit);
    cut.sample.labels.resize(limit);
  }
  return cut;
}

std::vector<ChatPiece> alpaca_pieces(const json& row, const std::string& eos) {
  std::vector<ChatPiece> pieces;
  std::string lead = alpaca_lead(text_of(row, "system"), text_of(row, "input"));
  if (holds(row, "history")) {
    for (const json& pair : row["history"]) {
      pieces.push_back({lead + alpaca_question(pair[0].get<std::string>())});
      pieces.push_back({pair[1].get<std::string>() + eos, true});
      lead = "\n\n";
    }
  }
  pieces.push_back({lead + alpaca_question(row["instruction"].get_ref<const std::string&>(),
                                           text_of(row, "input"))});
  pieces.push_back({text_of(row, "output") + eos, true});
  return pieces;
}

Result<Cut> alpaca_sample(const json& row, const Tokenizer& tokenizer, const Learning& learning,
                          int64_t max_seq_length) {
  const std::string eos = tokenizer.id_to_token(tokenizer.eos_id().value()).value();
  auto pieces = alpaca_pieces(row, eos);
  if (pieces.size() > 2 || learning != Learning()) {
    for (size_t i = 0; learning.last_answer && i + 2 < pieces.size(); ++i)
      pieces[i].learned = false;
    pieces = choose_pieces(learning, std::move(pieces), {eos});
    DSJ_TRY(Cut cut, pieces_sample(pieces, tokenizer, true, max_seq_length));
    if (learning.inputs) cut.sample.labels = cut.sample.input_ids;  // including bos
    return cut;
  }
  const std::string& prompt = pieces[0].text;
  const std::string text = prompt + pieces[1].text;
  const EncodeOptions longer{.max_length = max_seq_length + 1},
      limited{.max_length = max_seq_length};
  Cut cut;
  DSJ_TRY(cut.sample.input_ids, tokenizer.encode(text, longer));
  if (std::ssize(cut.sample.input_ids) > max_seq_length) {
    cut.truncated = true;
    DSJ_TRY(cut.sample.input_ids, tokenizer.encode(text, limited));
  }
  DSJ_TRY(const std::vector<int32_t> prompt_ids, tokenizer.encode(prompt, limited));
  cut.sample.labels = cut.sample.input_ids;
  const auto ignored = std::min(std::ssize(prompt_ids), std::ssize(cut.sample.labels));
  std::fill_n(cut.sample.labels.begin(), ignored, kIgnoredLabel);
  return cut;
}

std::optional<RowProblem> outside_vocabulary(const Sample& sample, const Tokenizer& tokenizer,
                                             int64_t vocab_size) {
  for (const int32_t id : sample.input_ids) {
    if (id < vocab_size) continue;
    return RowProblem{
        "", "becomes token " + std::to_string(id) + " ('" + tokenizer.id_to_token(id).value_or("") +
                "'), but the model's vocabulary has " + std::to_string(vocab_size) + " entries"};
  }
  return std::nullopt;
}

}  // namespace dsj::data

#include "engine/data/shapes/row_shape.h"

#include <algorithm>
#include <array>
#include <optional>

#include "engine/data/shapes/pair_shape.h"
#include "engine/data/shapes/row_mark.h"
#include "engine/data/text/text_file.h"

namespace dsj::data {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::array kQuestions = {"instruction", "query",  "question", "prompt",
                                   "input",       "inputs", "problem"};
constexpr std::array kAnswers = {"output", "response", "answer", "target", "targets", "solution"};
constexpr std::array kContexts = {"input", "context"};
constexpr std::array kSystems = {"system", "system_prompt"};
/// Fields with a list of turns or exchanges, other than messages and conversations.
constexpr std::array kTurnLists = {"conversation", "dialogue", "dialog", "items", "turns"};
constexpr std::array kAsking = {"human", "user", "input", "question", "query"};
constexpr std::array kAnswering = {"assistant", "gpt", "bot", "output", "answer", "response"};

/// The first of `names` that is a text in the row. `but`: a name to skip.
template <typename Names>
const char* text_named(const json& row, const Names& names, const char* but = nullptr) {
  for (const char* name : names) {
    if (but != nullptr && std::string_view(name) == but) continue;
    const auto found = row.find(name);
    if (found != row.end() && found->is_string()) return name;
  }
  return nullptr;
}

bool is_list(const json& row, const char* field) {
  const auto found = row.find(field);
  return found != row.end() && found->is_array();
}

std::string fields_of(const json& row) {
  constexpr size_t kListed = 12;
  std::string text;
  size_t count = 0;
  for (const auto& [name, value] : row.items())
    if (++count <= kListed) text += (text.empty() ? "" : ", ") + name;
  if (count == 0) return "has no fields";
  return "has the fields " + text + (count > kListed ? " ..." : "");
}

// ---- turns under other names

/// Returns the name in kTurnLists of the row's list of turns, or null.
const char* other_turns(const json& row) {
  for (const char* name : kTurnLists)
    if (holds(row, name) && row[name].is_array() && row[name][0].is_object()) return name;
  return nullptr;
}

/// Turns of exchanges: [{"human", "assistant"}...] (Firefly, MOSS) or [{"system", "input",
/// "output"}...] (XTuner). nullopt if an element is something else.
std::optional<ordered_json> turns_of_exchanges(const ordered_json& exchanges) {
  ordered_json turns = ordered_json::array();
  for (const ordered_json& one : exchanges) {
    const json plain = one;
    const char* asked = text_named(plain, kAsking);
    const char* answer = text_named(plain, kAnswering);
    if (asked == nullptr || answer == nullptr) return std::nullopt;
    if (turns.empty() && holds(plain, "system") && plain["system"].is_string())
      turns.push_back({{"role", "system"}, {"content", one["system"]}});
    turns.push_back({{"role", "user"}, {"content", one[asked]}});
    turns.push_back({{"role", "assistant"}, {"content", one[answer]}});
  }
  return turns;
}

// ---- tool calls as turns

bool is_call(const json& turn) {
  for (const char* name : {"from", "role"}) {
    const auto speaker = turn.is_object() ? turn.find(name) : turn.end();
    if (!turn.is_object() || speaker == turn.end() || !speaker->is_string()) continue;
    const auto& who = speaker->get_ref<const std::string&>();
    if (who == "function_call" || who == "tool_call") return true;
  }
  return false;
}

/// Converts a turn with calls to an assistant's turn with tool_calls. False if its text has none.
bool to_tool_calls(ordered_json& turn) {
  const char* content = turn.contains("value") ? "value" : "content";
  if (!turn.contains(content) || !turn[content].is_string()) return false;
  auto calls = ordered_json::parse(turn[content].get<std::string>(), nullptr, false);
  if (calls.is_object()) calls = ordered_json::array({calls});
  if (!calls.is_array() || calls.empty()) return false;
  ordered_json list = ordered_json::array();
  for (const ordered_json& call : calls) {
    if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return false;
    ordered_json function = {{"name", call["name"]}};
    function["arguments"] = call.value("arguments", ordered_json::object());
    list.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  turn[turn.contains("from") ? "from" : "role"] = "assistant";
  turn[content] = "";
  turn["tool_calls"] = std::move(list);
  return true;
}

// ---- the row in the form of its kind

class Shaper {
 public:
  Shaper(json row, std::string text) {
    made_.row = std::move(row);
    made_.text = std::move(text);
  }

  std::expected<ShapedRow, RowProblem> run() {
    name_turns();
    const json& row = made_.row;
    if (row.contains("input_ids")) return done(RowKind::Tokens, "tokens (input_ids, labels)");
    const bool chat = row.contains("messages") || row.contains("conversations");
    if (row.contains("instruction") && (row.contains("output") || !chat)) {
      const char* answer = text_named(row, kAnswers);
      if (row.contains("output") || answer == nullptr) return done(RowKind::Alpaca, kAlpacaShape);
    } else if (chat) {
      return turns();
    }
    if (row.contains("segments")) return done(RowKind::Segments, "segments (text, label)");
    if (row.contains("prompt") && row.contains("completion")) return prompt();
    const char* question = text_named(row, kQuestions);
    const char* answer = text_named(row, kAnswers);
    if (question != nullptr && answer != nullptr) return answered(question, answer);
    if (row.contains("text")) return done(RowKind::Text, "text");
    return std::unexpected(RowProblem{
        "", fields_of(row) +
                ", and no shape of rows has these: expected instruction and output, messages, "
                "conversations, prompt and completion, question and answer, text, segments or "
                "input_ids; datasetColumns gives other names" +
                rows_below(row)});
  }

 private:
  /// A hint that extracts rows that are in a list inside one object.
  static std::string rows_below(const json& row) {
    for (const auto& [name, value] : row.items())
      if (value.is_array() && !value.empty() && value[0].is_object())
        return "; jq -c '." + name + "[]' FILE > rows.jsonl writes the rows, if they lie under " +
               name;
    return {};
  }

  ShapedRow done(RowKind kind, std::string shape) {
    made_.kind = kind;
    made_.shape = std::move(shape);
    return std::move(made_);
  }

  void rewrite(const ordered_json& row) {
    made_.text = row.dump();
    made_.row = json::parse(made_.text);
  }

  /// Renames a list of turns to messages or conversations.
  void name_turns() {
    if (made_.row.contains("messages") || made_.row.contains("conversations")) return;
    const char* own = other_turns(made_.row);
    if (own == nullptr) return;
    const ordered_json row = ordered_json::parse(made_.text);
    const json& first = made_.row[own][0];
    auto turns = turns_of_exchanges(row[own]);
    if (!turns && !first.contains("role") && !first.contains("from")) return;
    const char* name = !turns && first.contains("from") ? "conversations" : "messages";
    ordered_json made = ordered_json::object();
    for (const auto& [field, value] : row.items()) made[field == own ? name : field] = value;
    if (turns) made[name] = std::move(*turns);
    made_.renamed.emplace_back(name, own);
    rewrite(made);
  }

  std::expected<ShapedRow, RowProblem> turns() {
    const char* list = turns_field(made_.row);
    const json& turns = made_.row[list];
    const std::string shape = made_.own_name(list) + " (turns)";
    if (!turns.is_array() || std::ranges::none_of(turns, is_call))
      return done(RowKind::Chat, shape);
    ordered_json row = ordered_json::parse(made_.text);
    for (size_t i = 0; i < turns.size(); ++i) {
      if (!is_call(turns[i]) || to_tool_calls(row[list][i])) continue;
      return std::unexpected(
          RowProblem{std::string(list) + "[" + std::to_string(i) + "]",
                     "is a turn of calls, and its text is not the JSON of {\"name\", "
                     "\"arguments\"} or of a list of them"});
    }
    rewrite(row);
    return done(RowKind::Chat, shape);
  }

  std::expected<ShapedRow, RowProblem> prompt() {
    const bool asks = is_list(made_.row, "prompt"), answers = is_list(made_.row, "completion");
    if (asks != answers)
      return std::unexpected(
          RowProblem{asks ? "completion" : "prompt", "is not a list of turns, as the other is"});
    if (!asks) return done(RowKind::Prompt, "prompt, completion");
    ordered_json row = ordered_json::parse(made_.text), turns = row["prompt"];
    for (ordered_json& turn : row["completion"]) turns.push_back(std::move(turn));
    row[kPromptTurns] = row["prompt"].size();
    row["messages"] = std::move(turns);
    row.erase("prompt");
    row.erase("completion");
    rewrite(row);
    return done(RowKind::ChatPrompt, "prompt, completion (turns)");
  }

  /// A question and its answer; the arguments are their fields' names.
  ShapedRow answered(const char* question, const char* answer) {
    const char* context = text_named(made_.row, kContexts, question);
    const char* system = text_named(made_.row, kSystems);
    const std::array<std::pair<const char*, const char*>, 4> names = {
        {{"instruction", question}, {"input", context}, {"system", system}, {"output", answer}}};
    const ordered_json row = ordered_json::parse(made_.text);
    ordered_json made = ordered_json::object();
    for (const auto& [name, own] : names) {
      if (own == nullptr) continue;
      made[name] = row[own];
      if (std::string_view(name) != own) made_.renamed.emplace_back(name, own);
    }
    for (const auto& [name, value] : row.items()) {
      const auto is_it = [&name](const auto& one) { return one.second && name == one.second; };
      if (std::ranges::none_of(names, is_it) && !made.contains(name)) made[name] = value;
    }
    rewrite(made);
    return done(RowKind::Alpaca, std::string(question) + ", " + answer);
  }

  ShapedRow made_;
};

std::expected<ShapedRow, RowProblem> shaped_mark(json row, const std::string& text) {
  if (holds(row, "chosen") && holds(row, "rejected")) return shaped_pair(std::move(row), text);
  auto unmarked = without_mark(std::move(row), text);
  if (!unmarked) return std::unexpected(std::move(unmarked.error()));
  if (auto problem = refused_field(unmarked->row)) return std::unexpected(std::move(*problem));
  auto shaped = Shaper(std::move(unmarked->row), std::move(unmarked->text)).run();
  if (shaped) shaped = to_judge(std::move(*shaped));
  if (shaped) shaped->good = unmarked->good;
  return shaped;
}

/// The text of ms-swift's row for continued pretraining, an answer without a question; else
/// nullopt.
std::optional<std::string> only_answer(const json& row) {
  if (!holds(row, "messages") || !row["messages"].is_array() || row["messages"].size() != 1)
    return std::nullopt;
  const json& turn = row["messages"][0];
  if (!turn.is_object() || turn.value("role", json()) != "assistant" || !turn.contains("content") ||
      !turn["content"].is_string())
    return std::nullopt;
  return turn["content"].get<std::string>();
}

/// For rows of ids alone, as after map(tokenize).
void label_every_token(json& row) {
  for (const char* field : {"labels", "completion_mask", "assistant_masks"})
    if (!row.value(field, json()).is_null()) return;
  json& labels = row["labels"] = row["input_ids"];
  const json mask = row.value("attention_mask", json());
  if (!labels.is_array() || !mask.is_array() || mask.size() != labels.size()) return;
  for (size_t i = 0; i < mask.size(); ++i)
    if (mask[i] == 0 || mask[i] == false) labels[i] = kIgnoredLabel;
}

std::expected<ShapedRow, RowProblem> shaped_as(RowAim aim, json row, std::string text) {
  if (aim == RowAim::Pairs) return shaped_pair(std::move(row), std::move(text));
  if (aim == RowAim::Marked) return shaped_mark(std::move(row), text);
  if (auto problem = refused_field(row)) return std::unexpected(std::move(*problem));
  if (const auto answer = aim == RowAim::Texts ? only_answer(row) : std::nullopt) {
    row.erase("messages");
    row["text"] = *answer;
    text = row.dump();
  }
  auto shaped = Shaper(std::move(row), std::move(text)).run();
  if (shaped && aim == RowAim::Texts && shaped->kind != RowKind::Text &&
      shaped->kind != RowKind::Tokens)
    return std::unexpected(RowProblem{"", "is of shape " + shaped->shape +
                                              ", and objective pretrain learns texts: "
                                              "expected text, or input_ids and labels"});
  if (shaped && aim == RowAim::Texts && shaped->kind == RowKind::Tokens)
    label_every_token(shaped->row);
  return shaped;
}

}  // namespace

std::expected<ShapedRow, RowProblem> shaped_row(const json& row, RowAim aim) {
  if (!row.is_object())
    return std::unexpected(RowProblem{"", "is " + kind_of(row) + ", expected an object"});
  return shaped_as(aim, row, row.dump());
}

std::expected<ShapedRow, RowProblem> shaped_row(const RowNames& names, std::string_view text,
                                                RowAim aim) {
  auto row = parse_json(text, "");
  if (!row) {
    const Error& error = row.error();
    return std::unexpected(RowProblem{"", error.message});
  }
  if (!row->is_object())
    return std::unexpected(RowProblem{"", "is " + kind_of(*row) + ", expected an object"});
  if (names.empty()) return shaped_as(aim, std::move(*row), std::string(text));
  if (aim == RowAim::Answers || aim == RowAim::Texts)
    if (auto problem = refused_field(*row)) return std::unexpected(std::move(*problem));
  auto renamed = names.renamed(ordered_json::parse(text));
  if (!renamed) return std::unexpected(std::move(renamed.error()));
  std::string made = renamed->dump();
  json again = json::parse(made);
  auto shaped = shaped_as(aim, std::move(again), std::move(made));
  if (!shaped) return shaped;
  for (auto& [name, own] : shaped->renamed) own = names.own_name(own);
  for (ShapedRow& rejected : shaped->rejected)
    for (auto& [name, own] : rejected.renamed) own = names.own_name(own);
  return shaped;
}

}  // namespace dsj::data

#include "engine/data/shapes/row_names.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "common/json.h"

namespace dsj::data {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

struct Known {
  std::string_view key, name;
};
/// A column's key and the row's field for it. "prompt" depends on the other columns.
constexpr auto kColumns = std::to_array<Known>({{"prompt", "prompt"},
                                                {"instruction", "instruction"},
                                                {"query", "input"},
                                                {"input", "input"},
                                                {"response", "output"},
                                                {"output", "output"},
                                                {"completion", "completion"},
                                                {"history", "history"},
                                                {"system", "system"},
                                                {"tools", "tools"},
                                                {"messages", "messages"},
                                                {"conversations", "messages"},
                                                {"text", "text"},
                                                {"kto_tag", "label"},
                                                {"chosen", "chosen"},
                                                {"rejected", "rejected"}});
constexpr auto kTags = std::to_array<Known>({{"role_tag", "role"}, {"content_tag", "content"}});
constexpr auto kRoles = std::to_array<Known>({{"user_tag", "user"},
                                              {"assistant_tag", "assistant"},
                                              {"observation_tag", "tool"},
                                              {"function_tag", "function_call"},
                                              {"system_tag", "system"}});
constexpr std::array kMediaKeys = {"images", "videos", "audios"};
/// Fields that a row must have if a column names them; other fields may be missing.
constexpr std::array<std::string_view, 9> kNeeded = {"instruction", "output",   "prompt",
                                                     "completion",  "messages", "text",
                                                     "label",       "chosen",   "rejected"};
/// Names that determine a row's shape.
constexpr auto kOfShapes = std::to_array<std::string_view>(
    {"instruction", "input",        "output",       "history",       "system",   "tools",
     "messages",    "prompt",       "completion",   "conversations", "text",     "context",
     "segments",    "label",        "input_ids",    "chosen",        "rejected", "query",
     "question",    "inputs",       "problem",      "response",      "answer",   "target",
     "targets",     "solution",     "conversation", "dialogue",      "dialog",   "items",
     "turns",       "system_prompt"});

template <typename Table>
std::optional<std::string> name_of(const Table& table, std::string_view key) {
  const auto found = std::ranges::find(table, key, &Known::key);
  return found == table.end() ? std::nullopt : std::optional(std::string(found->name));
}

bool is_one_of(const auto& list, std::string_view word) {
  return std::ranges::find(list, word) != list.end();
}

}  // namespace

Result<RowNames> RowNames::of(const json& columns, const std::string& where) {
  RowNames names;
  if (!columns.is_object())
    return bad_input("is not an object of names", where,
                     "write {\"prompt\": \"question\", \"response\": \"answer\"}");
  for (const auto& [key, value] : columns.items()) {
    if (value.is_null()) continue;
    if (is_one_of(kMediaKeys, key))
      return bad_input("\"" + key + "\" holds media, and only text is read", where, "leave it out");
    if (!value.is_string() || value.get_ref<const std::string&>().empty())
      return bad_input("\"" + key + "\" is " + value.dump() + ", expected a field's name", where);
    const auto word = value.get<std::string>();
    if (const auto column = name_of(kColumns, key))
      names.columns_[*column] = word;
    else if (const auto tag = name_of(kTags, key))
      names.tags_[*tag] = word;
    else if (const auto role = name_of(kRoles, key))
      names.roles_[word] = *role;
    else
      return bad_input("\"" + key + "\" is not a column or a tag", where,
                       "expected prompt, query, response, history, system, tools, messages, "
                       "completion, text, kto_tag, chosen, rejected, or a tag such as role_tag");
  }
  const auto prompt = names.columns_.find("prompt");
  if (prompt != names.columns_.end() && !names.columns_.contains("completion")) {
    // With a response the prompt is a question; alone it is a text, as in LLaMA-Factory's stage pt.
    const bool asks = names.columns_.contains("output") || names.columns_.contains("chosen");
    const char* shape = asks ? "instruction" : "text";
    names.columns_[shape] = prompt->second;
    names.columns_.erase("prompt");
  }
  return names;
}

Result<RowNames> RowNames::of_entry(const json& entry, const std::string& where) {
  const json& given = json_child(entry, "formatting");
  const std::string formatting = given.is_null()     ? "alpaca"
                                 : given.is_string() ? given.get<std::string>()
                                                     : given.dump();
  if (formatting != "alpaca" && formatting != "sharegpt" && formatting != "openai")
    return bad_input("\"formatting\" is \"" + formatting + "\"", where,
                     "expected alpaca, sharegpt or openai");
  json all = json::object();
  if (formatting != "alpaca") {
    all = {{"messages", "conversations"},     {"role_tag", "from"},
           {"content_tag", "value"},          {"user_tag", "human"},
           {"assistant_tag", "gpt"},          {"observation_tag", "observation"},
           {"function_tag", "function_call"}, {"system_tag", "system"}};
  } else if (!entry.contains("columns")) {
    return RowNames();  // no renaming
  }
  for (const char* part : {"columns", "tags"}) {
    const auto found = entry.find(part);
    if (found == entry.end()) continue;
    if (!found->is_object()) return bad_input(std::string(part) + " is not an object", where);
    all.update(*found);
  }
  return of(all, where);
}

std::string RowNames::text() const {
  return empty() ? std::string() : json{columns_, tags_, roles_}.dump();
}

bool RowNames::is_plain_text() const {
  return columns_.size() == 1 && columns_.begin()->first == "text" &&
         columns_.begin()->second == "text";
}

std::expected<ordered_json, RowProblem> RowNames::renamed(const ordered_json& row) const {
  ordered_json made = ordered_json::object();
  const auto has = [&row](const char* field) {
    const auto found = row.find(field);
    return found != row.end() && !found->is_null();
  };
  if (is_plain_text()) {
    // TRL's default: what TRL knows comes first.
    const bool known = has("messages") || has("conversations") || has("input_ids") ||
                       has("chosen") || (has("prompt") && has("completion"));
    if (known || !has("text")) return renamed_turns(row);
  }
  for (const auto& [name, own] : columns_) {
    const auto found = row.find(own);
    if (found != row.end()) made[name] = *found;
    if (found == row.end() && is_one_of(kNeeded, name))
      return std::unexpected(RowProblem{own, "is missing, and datasetColumns names it"});
  }
  for (const auto& [name, value] : row.items()) {
    const bool is_taken = std::ranges::any_of(
        columns_, [&name](const auto& column) { return column.second == name; });
    if (is_taken) continue;
    const bool hides = !columns_.empty() && is_one_of(kOfShapes, name);
    made[hides ? name + " (no column of datasetColumns)" : name] = value;
  }
  return renamed_turns(std::move(made));
}

ordered_json RowNames::renamed_turns(ordered_json row) const {
  for (const char* list : {"messages", "conversations", "chosen", "rejected"}) {
    const auto turns = row.find(list);
    if (turns == row.end()) continue;
    if (turns->is_object()) *turns = ordered_json::array({*turns});  // one turn (LLaMA-Factory)
    rename_turns(*turns);
  }
  return row;
}

void RowNames::rename_turns(ordered_json& turns) const {
  if (!turns.is_array()) return;
  for (ordered_json& turn : turns) {
    if (!turn.is_object()) continue;
    ordered_json made = ordered_json::object();
    for (const auto& [name, value] : turn.items()) {
      const auto tag =
          std::ranges::find_if(tags_, [&name](const auto& one) { return one.second == name; });
      made[tag == tags_.end() ? name : tag->first] = value;
    }
    for (const char* name : {"role", "from"}) {
      const auto speaker = made.find(name);
      if (speaker == made.end() || !speaker->is_string()) continue;
      const auto role = roles_.find(speaker->get<std::string>());
      if (role != roles_.end()) *speaker = role->second;
    }
    turn = std::move(made);
  }
}

std::string RowNames::own_name(const std::string& field) const {
  const size_t end = std::min(field.find_first_of("[."), field.size());
  const auto own = columns_.find(field.substr(0, end));
  return own == columns_.end() ? field : own->second + field.substr(end);
}

}  // namespace dsj::data

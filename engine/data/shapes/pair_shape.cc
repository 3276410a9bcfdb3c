#include "engine/data/shapes/pair_shape.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace dsj::data {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::array kQuestions = {"instruction", "question", "query", "input"};
constexpr std::array kSystems = {"system", "system_prompt"};

/// A turn's speaker and text, under the names role and content.
json said_in(const ordered_json& turn) {
  json said = json::object();
  for (const auto& [own, name] : {std::pair{"from", "role"}, std::pair{"value", "content"},
                                  std::pair{"role", "role"}, std::pair{"content", "content"}})
    if (turn.is_object() && turn.contains(own)) said[name] = turn[own];
  return said;
}

/// An answer's turns: a list, or a single turn (LLaMA-Factory).
ordered_json turns_of(const ordered_json& answer) {
  return answer.is_array() ? answer : ordered_json::array({answer});
}

/// Renames ShareGPT's fields of turns to those of messages.
void to_messages(ordered_json& turns) {
  for (ordered_json& turn : turns) {
    if (!turn.is_object() || turn.contains("role") || !turn.contains("from")) continue;
    ordered_json made = ordered_json::object();
    for (const auto& [name, value] : turn.items())
      made[name == "from" ? "role" : name == "value" ? "content" : name] = value;
    turn = std::move(made);
  }
}

/// ms-swift's rows end with the chosen answer (`messages` or `response`) and have the rejected
/// one in rejected_response or rejected_messages. Turns them into chosen and rejected in `row`,
/// which is `plain` in the file's order. Returns false if `plain` is not such a row.
bool name_answers(const json& plain, ordered_json& row) {
  if (holds(plain, "chosen") || holds(plain, "rejected")) return false;
  const auto is_list = [&](const char* field) {
    return holds(plain, field) && plain[field].is_array();
  };
  const bool answers = holds(plain, "rejected_response");
  if (is_list("messages") && is_list("rejected_messages")) {
    row["chosen"] = row["messages"];
    row["rejected"] = row["rejected_messages"];
    row.erase("messages");
    row.erase("rejected_messages");
  } else if (answers && is_list("messages") && row["messages"].back().is_object()) {
    ordered_json turns = row["messages"], rejected = turns.back();
    rejected["content"] = row["rejected_response"];
    row["chosen"] = ordered_json::array({turns.back()});
    row["rejected"] = ordered_json::array({rejected});
    turns.erase(turns.size() - 1);
    row["messages"] = turns;
    row.erase("rejected_response");
  } else if (answers && holds(plain, "response")) {
    row["chosen"] = row["response"];
    row["rejected"] = row["rejected_response"];
    row.erase("response");
    row.erase("rejected_response");
  } else {
    return false;
  }
  return true;
}

class PairShaper {
 public:
  PairShaper(json row, const std::string& text)
      : row_(ordered_json::parse(text)),
        plain_(name_answers(row, row_) ? json::parse(row_.dump()) : std::move(row)) {}

  std::expected<ShapedRow, RowProblem> run() {
    for (const char* field : {"chosen", "rejected"})
      if (!holds(plain_, field))
        return problem(plain_.contains(field) ? field : "",
                       plain_.contains(field)
                           ? "is empty"
                           : std::string("has no ") + field +
                                 ": this objective compares two answers to one prompt, chosen and "
                                 "rejected; datasetColumns gives other names");
    json rest = plain_;
    rest.erase("chosen");
    rest.erase("rejected");
    for (const char* beside : {"chosen", "rejected"})  // scores, for example, are not read
      std::erase_if(rest.get_ref<json::object_t&>(), [beside](const auto& field) {
        return field.first.starts_with(beside) || field.first.ends_with(std::string("_") + beside);
      });
    if (auto refused = refused_field(rest)) return std::unexpected(std::move(*refused));
    const bool texts = row_["chosen"].is_string() && row_["rejected"].is_string();
    const bool turns = row_["chosen"].is_structured() && row_["rejected"].is_structured();
    if (!texts && !turns)
      return problem("rejected", "is " + kind_of(plain_["rejected"]) + ", and chosen is " +
                                     kind_of(plain_["chosen"]) +
                                     ": expected two texts or two lists of turns");
    const bool chat = plain_.contains("messages") || plain_.contains("conversations");
    if (turns || chat) return of_turns();
    if (plain_.contains("prompt")) return of_texts(plain_["prompt"]);
    for (const char* question : kQuestions)
      if (plain_.contains(question) && plain_[question].is_string()) return asked(question);
    return implicit_text();
  }

 private:
  static std::unexpected<RowProblem> problem(std::string field, std::string what) {
    return std::unexpected(RowProblem{std::move(field), std::move(what)});
  }

  /// Makes a pair of two rows made from `row_`; the rejected one lacks fields that only notes read.
  static ShapedRow pair_of(RowKind kind, std::string shape, ordered_json chosen,
                           ordered_json rejected, const char* answer) {
    const auto made = [&](const ordered_json& row, const char* own) {
      ShapedRow half{.kind = kind, .shape = shape, .text = row.dump()};
      half.row = json::parse(half.text);
      half.renamed.emplace_back(answer, own);
      return half;
    };
    ShapedRow pair = made(chosen, "chosen");
    pair.rejected.push_back(made(rejected, "rejected"));
    return pair;
  }

  std::expected<ShapedRow, RowProblem> of_texts(const json& prompt) {
    if (!prompt.is_string()) {
      if (prompt.is_array()) return of_turns();
      return problem("prompt", "is " + kind_of(prompt) + ", expected text");
    }
    ordered_json chosen = others({"chosen", "rejected", "prompt"});
    chosen["prompt"] = prompt;
    ordered_json rejected = {{"prompt", prompt}, {"completion", row_["rejected"]}};
    chosen["completion"] = row_["chosen"];
    return pair_of(RowKind::Prompt, "prompt, chosen, rejected", std::move(chosen),
                   std::move(rejected), "completion");
  }

  std::expected<ShapedRow, RowProblem> implicit_text() {
    const auto chosen = row_["chosen"].get<std::string>();
    const auto rejected = row_["rejected"].get<std::string>();
    const size_t common = common_prompt(chosen, rejected);
    row_["chosen"] = chosen.substr(common);
    row_["rejected"] = rejected.substr(common);
    auto made = of_texts(chosen.substr(0, common));
    if (made) made->shape = made->rejected[0].shape = "chosen, rejected";
    return made;
  }

  /// Shapes a question for Stanford's prompt, as in rows with one answer.
  std::expected<ShapedRow, RowProblem> asked(const char* question) {
    const bool alpaca = std::string_view(question) == "instruction";
    ordered_json chosen = others({"chosen", "rejected", question});
    chosen["instruction"] = row_[question];
    for (const char* system : kSystems)
      if (!alpaca && plain_.contains(system) && plain_[system].is_string())
        chosen["system"] = row_[system];
    ordered_json rejected = chosen;
    chosen["output"] = row_["chosen"];
    rejected["output"] = row_["rejected"];
    return pair_of(RowKind::Alpaca, std::string(question) + ", chosen, rejected", std::move(chosen),
                   std::move(rejected), "output");
  }

  std::expected<ShapedRow, RowProblem> of_turns() {
    for (const char* answer : {"chosen", "rejected"}) {
      if (row_[answer].is_string())
        row_[answer] = ordered_json::array({{{"role", "assistant"}, {"content", row_[answer]}}});
      row_[answer] = turns_of(row_[answer]);
    }
    ordered_json prompt = ordered_json::array();
    const char* list = turns_field(plain_);
    bool implicit = false;
    const bool prompts = plain_.contains("prompt") && row_["prompt"].is_array();
    if (holds(plain_, list) || prompts) {
      prompt = row_[holds(plain_, list) ? list : "prompt"];
      implicit = leave_repeated(prompt);
    } else {
      implicit = begins_alike();
      if (!implicit && plain_.contains("prompt") && row_["prompt"].is_string())
        prompt.push_back({{"role", "user"}, {"content", row_["prompt"]}});
    }
    if (!prompt.is_array())
      return problem(list,
                     "is " + kind_of(json::parse(prompt.dump())) + ", expected a list of turns");
    if (implicit) take_common(prompt);
    if (prompt.empty())
      return problem("chosen",
                     "does not begin as rejected does: expected the turns of one prompt, "
                     "in both or as prompt");
    for (const char* answer : {"chosen", "rejected"})
      if (row_[answer].empty()) return problem(answer, "has no turn behind the prompt");
    return of_prompt(prompt);
  }

  /// Both answers may begin with turns that the list ends with: UltraFeedback's `messages` are the
  /// chosen conversation, and some rows repeat their prompt. Removes these turns from the list;
  /// whether there are any.
  bool leave_repeated(ordered_json& list) const {
    if (!list.is_array() || !begins_alike()) return false;
    const ordered_json& chosen = row_["chosen"];
    for (size_t i = 0; i < list.size(); ++i) {
      const size_t count = list.size() - i;
      const auto repeats = [&](size_t turn) {
        return said_in(list[i + turn]) == said_in(chosen[turn]);
      };
      size_t same = 0;
      while (same < std::min(count, chosen.size()) && repeats(same)) ++same;
      const json role = said_in(list[i]).value("role", json());
      if (same < count || !role.is_string() || role_of(role.get<std::string>()) == "assistant")
        continue;
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i), list.end());
      return true;
    }
    return false;
  }

  bool begins_alike() const {
    return !row_["chosen"].empty() && !row_["rejected"].empty() &&
           said_in(row_["chosen"][0]) == said_in(row_["rejected"][0]);
  }

  /// Moves the common first turns of both answers into the prompt. As in TRL, if one list is
  /// the beginning of the other, the last common turn stays in the answers.
  void take_common(ordered_json& prompt) {
    ordered_json &chosen = row_["chosen"], &rejected = row_["rejected"];
    const size_t most = std::min(chosen.size(), rejected.size());
    size_t common = 0;
    while (common < most && chosen[common] == rejected[common]) ++common;
    if (common == most) --common;
    for (size_t i = 0; i < common; ++i) prompt.push_back(chosen[i]);
    for (ordered_json* answer : {&chosen, &rejected})
      answer->erase(answer->begin(), answer->begin() + static_cast<std::ptrdiff_t>(common));
  }

  std::expected<ShapedRow, RowProblem> of_prompt(ordered_json prompt) {
    const ordered_json rest = others({"chosen", "rejected", "prompt", "messages", "conversations"});
    const auto with = [&](const char* answer) {
      ordered_json row = rest, turns = prompt;
      for (const ordered_json& turn : row_[answer]) turns.push_back(turn);
      to_messages(turns);
      row[kPromptTurns] = prompt.size();
      row["messages"] = std::move(turns);
      return row;
    };
    return pair_of(RowKind::ChatPrompt, "prompt, chosen, rejected (turns)", with("chosen"),
                   with("rejected"), "messages");
  }

  /// The row's other fields.
  ordered_json others(std::initializer_list<std::string_view> but) const {
    ordered_json rest = ordered_json::object();
    for (const auto& [name, value] : row_.items())
      if (std::ranges::find(but, name) == but.end()) rest[name] = value;
    return rest;
  }

  ordered_json row_;
  const json plain_;
};

}  // namespace

std::size_t common_prompt(const std::string& chosen, const std::string& rejected) {
  const auto differ = std::ranges::mismatch(chosen, rejected).in1;
  auto common = static_cast<std::size_t>(differ - chosen.begin());
  const auto inside = [&](std::size_t at) {  // inside a character
    return at < chosen.size() && (static_cast<unsigned char>(chosen[at]) & 0xC0) == 0x80;
  };
  const bool whole = common == std::min(chosen.size(), rejected.size());
  if (whole && common > 0) --common;
  while (common > 0 && inside(common)) --common;
  if (!whole && common > 0 && chosen[common - 1] == ' ') --common;
  return common;
}

std::expected<ShapedRow, RowProblem> shaped_pair(nlohmann::json row, std::string text) {
  return PairShaper(std::move(row), text).run();
}

}  // namespace dsj::data

#include "engine/data/question.h"

#include "common/files/memory_files.h"
#include "common/json.h"
#include "engine/data/row_file.h"
#include "engine/data/rows.h"
#include "engine/data/text/text_file.h"

namespace dsj::data {
namespace {

using nlohmann::json;

std::unexpected<Error> bad_row(const RowProblem& problem) {
  return bad_input((problem.field.empty() ? "" : problem.field + ": ") + problem.what);
}

/// The text before the last answer.
std::string before_answer(const std::vector<ChatPiece>& pieces) {
  size_t last = pieces.size();
  while (last > 0 && !pieces[last - 1].learned) --last;
  std::string text;
  for (size_t i = 0; i + 1 < last; ++i) text += pieces[i].text;
  return text;
}

Result<std::vector<json>> read_rows(const RowFile& file, const std::string& path, int64_t limit) {
  std::vector<json> rows;
  Status bad;
  DSJ_TRY_STATUS(file.scan([&](const RowPlace& place, std::string_view raw) {
    if (!bad || std::ssize(rows) >= limit) return;
    auto row = file.json(raw);
    if (row) {
      rows.push_back(std::move(*row));
    } else {
      bad = bad_input("row " + std::to_string(place.row) + " " + row.error().message,
                      path + (place.line > 0 ? ":" + std::to_string(place.line) : ""));
    }
  }));
  DSJ_TRY_STATUS(bad);
  return rows;
}

}  // namespace

Result<std::vector<json>> read_rows(Files& files, const std::string& path, int64_t limit) {
  DSJ_TRY(const RowFile file, RowFile::open(files, path, {}, {}));
  return read_rows(file, path, limit);
}

Result<std::vector<json>> rows_of(const std::string& text, const std::string& name, int64_t limit) {
  MemoryFiles files;
  DSJ_TRY_STATUS(files.write_synced(name, text));
  return read_rows(files, name, limit);
}

Result<ChatTemplate> Asker::chat_template() {
  if (!found_) found_ = find_chat_template(files_, model_dir_, wanted_, tokenizer_);
  return *found_;
}

Result<Question> Asker::chat(Conversation told, bool answered) {
  DSJ_TRY(const ChatTemplate named, chat_template());
  Question question;
  if (answered) question.answer = told.turns.back().content;
  if (answered) told.turns.pop_back();
  if (!told.turns.empty()) question.asked = told.turns.back().content;
  DSJ_TRY(const std::string text, render_question(named.with(told.kwargs), told.turns, told.tools));
  DSJ_TRY(question.ids, tokenizer_.encode(text, {.add_special_tokens = false}));
  return question;
}

Result<Question> Asker::row(const json& given) {
  auto shaped = shaped_row(given);
  if (!shaped && shaped.error().field.empty()) {  // no shape: a question alone?
    const json prompt = json_child(given, "prompt");
    if (prompt.is_string()) return raw(prompt.get<std::string>());
    if (prompt.is_array() && !prompt.empty()) {
      json turns = {{"messages", prompt}};
      for (const char* name : {"tools", kTemplateKwargs})
        if (given.contains(name)) turns[name] = given[name];
      return row(turns);
    }
    for (const char* name : {"question", "query", "problem", "input", "inputs"})
      if (const json asked = json_child(given, name); asked.is_string())
        return row({{"instruction", asked}});
  }
  if (!shaped) return bad_row(shaped.error());
  json row = shaped->row;
  if (shaped->kind == RowKind::Prompt) {
    if (const auto problem = check_row(*shaped, 0)) return bad_row(*problem);
    DSJ_TRY(Question question, raw(row["prompt"].get<std::string>()));
    question.answer = row["completion"].get<std::string>();
    return question;
  }
  if (shaped->kind == RowKind::ChatPrompt) {
    if (const auto problem = check_row(*shaped, 0)) return bad_row(*problem);
    DSJ_TRY(Conversation told, conversation_of(row, shaped->text));
    const size_t asked = row[kPromptTurns].get<size_t>() + (takes_system(row) ? 1 : 0);
    std::optional<std::string> answer;
    if (asked < told.turns.size()) answer = told.turns[asked].content;
    told.turns.resize(std::min(asked, told.turns.size()));
    DSJ_TRY(Question question, chat(std::move(told), /*answered=*/false));
    question.answer = std::move(answer);
    return question;
  }
  if (shaped->kind != RowKind::Alpaca && shaped->kind != RowKind::Chat)
    return bad_input("has no question: it is of shape " + shaped->shape +
                     ", and a question is asked as an alpaca, chat or prompt row");
  if (shaped->kind == RowKind::Alpaca) {
    const bool answered = row.contains("output") && row["output"].is_string();
    if (!answered) row["output"] = "";
    if (wanted_ != "auto") {
      const ShapedRow turns = as_turns({RowKind::Alpaca, shaped->shape, row, row.dump(), {}});
      if (turns.kind == RowKind::Chat) {
        DSJ_TRY(Conversation told, conversation_of(turns.row, turns.text));
        if (!answered) told.turns.pop_back();
        return chat(std::move(told), answered);
      }
    }
    if (const auto problem = check_alpaca(row)) return bad_row(*problem);
    Question question;
    if (answered) question.answer = row["output"].get<std::string>();
    question.asked = row["instruction"].get<std::string>();
    if (holds(row, "input")) question.asked += " " + row["input"].get<std::string>();
    const auto eos = tokenizer_.eos_id();
    const auto pieces =
        alpaca_pieces(row, eos ? tokenizer_.id_to_token(*eos).value_or("") : std::string());
    DSJ_TRY(question.ids, tokenizer_.encode(before_answer(pieces)));
    return question;
  }
  json& turns = row[turns_field(row)];
  const bool ends_with_answer =
      turns.is_array() && !turns.empty() && turns.back().is_object() && [&] {
        const json role = turns.back().value(role_field(row, turns.back()), json());
        return role == "assistant" || role == "gpt";
      }();
  const char* list = turns_field(row);
  if (turns.is_array() && !turns.empty() && !ends_with_answer) {
    const bool sharegpt = std::string_view(list) == "conversations";
    turns.push_back(
        {{sharegpt ? "from" : "role", "assistant"}, {sharegpt ? "value" : "content", ""}});
  }
  if (const auto problem = check_chat(row)) return bad_row(*problem);
  DSJ_TRY(Conversation told, conversation_of(row, row.dump()));
  if (!ends_with_answer) told.turns.pop_back();
  return chat(std::move(told), ends_with_answer);
}

Result<bool> Asker::takes_turns() {
  const auto named = chat_template();
  if (!named && wanted_ != "auto") return std::unexpected(named.error());
  return named.has_value();
}

Result<Question> Asker::conversation(const std::vector<Turn>& turns) {
  DSJ_TRY(const bool all, takes_turns());
  if (all) return chat({.turns = turns}, /*answered=*/false);
  return row({{"instruction", turns.back().content}});
}

Result<Question> Asker::text(const std::string& text) {
  return conversation({{"user", text}});
}

Result<Question> Asker::raw(const std::string& text) const {
  Question question{.asked = text, .ids = {}, .answer = std::nullopt};
  DSJ_TRY(question.ids, tokenizer_.encode(text));
  return question;
}

}  // namespace dsj::data

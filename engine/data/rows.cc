#include "engine/data/rows.h"

#include <algorithm>

#include "engine/data/prompt.h"

namespace dsj::data {
namespace {

using nlohmann::json;

std::string kind_of(const json& value) {
  if (value.is_null()) return "null";
  if (value.is_string()) return "text";
  if (value.is_number_float()) return "a fraction";
  if (value.is_number()) return "a number";
  return value.is_boolean() ? "true or false" : value.is_array() ? "a list" : "an object";
}

std::optional<RowProblem> check_text(const json& row, const char* field, bool needed) {
  const auto found = row.find(field);
  if (found == row.end()) {
    if (!needed) return std::nullopt;
    return RowProblem{field, "is missing"};
  }
  if (!found->is_string()) return RowProblem{field, "is " + kind_of(*found) + ", expected text"};
  return std::nullopt;
}

/// Whether it is a list of integers that all pass `is_allowed`.
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

}  // namespace

std::expected<RowKind, RowProblem> row_kind(const json& row) {
  if (!row.is_object())
    return std::unexpected(RowProblem{"", "is " + kind_of(row) + ", expected an object"});
  if (row.contains("input_ids")) return RowKind::Tokens;
  if (row.contains("instruction")) return RowKind::Alpaca;
  if (row.contains("messages") || row.contains("conversations")) return RowKind::Chat;
  return std::unexpected(RowProblem{
      "instruction", "is missing (and there is no messages, conversations or input_ids)"});
}

std::optional<RowProblem> check_alpaca(const json& row) {
  if (auto problem = check_text(row, "instruction", true)) return problem;
  if (auto problem = check_text(row, "input", false)) return problem;
  return check_text(row, "output", true);
}

std::optional<RowProblem> check_tokens(const json& row, int64_t vocab_size) {
  const std::string ids = "an id from 0 to " + std::to_string(vocab_size - 1);
  const auto is_id = [vocab_size](int64_t id) { return id >= 0 && id < vocab_size; };
  if (auto problem = check_ids(row, "input_ids", ids, is_id)) return problem;
  if (auto problem = check_ids(row, "labels", ids + " or -100",
                               [&](int64_t id) { return id == kIgnoredLabel || is_id(id); })) {
    return problem;
  }
  const std::size_t length = row["input_ids"].size();
  if (length == 0) return RowProblem{"input_ids", "is empty"};
  if (row["labels"].size() != length) {
    return RowProblem{"labels", "has " + std::to_string(row["labels"].size()) +
                                    " entries, input_ids has " + std::to_string(length)};
  }
  if (!row.contains("attention_mask")) return std::nullopt;
  if (auto problem = check_ids(row, "attention_mask",
                               "1 (rows are never padded: leave padding out of the file)",
                               [](int64_t value) { return value == 1; })) {
    return problem;
  }
  if (row["attention_mask"].size() != length) {
    return RowProblem{"attention_mask", "is not as long as input_ids"};
  }
  return std::nullopt;
}

// ---- chat

namespace {

/// The names of a conversation's fields.
struct ChatFields {
  const char *list, *role, *content;
};

ChatFields chat_fields(const json& row) {
  if (row.contains("messages")) return {"messages", "role", "content"};
  return {"conversations", "from", "value"};
}

/// nullopt: not one of the known speakers.
std::optional<std::string> role_of(const std::string& name) {
  if (name == "human") return "user";
  if (name == "gpt") return "assistant";
  if (name == "system" || name == "user" || name == "assistant") return name;
  return std::nullopt;
}

}  // namespace

std::optional<RowProblem> check_chat(const json& row) {
  const ChatFields fields = chat_fields(row);
  const json& list = row[fields.list];
  if (!list.is_array() || list.empty()) {
    return RowProblem{fields.list, list.is_array()
                                       ? "is empty"
                                       : "is " + kind_of(list) + ", expected a list of turns"};
  }
  bool answered = false;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = std::string(fields.list) + "[" + std::to_string(i) + "]";
    if (!list[i].is_object()) {
      return RowProblem{place, "is " + kind_of(list[i]) + ", expected an object"};
    }
    for (const char* field : {fields.role, fields.content}) {
      if (auto problem = check_text(list[i], field, true)) {
        return RowProblem{place + "." + problem->field, problem->what};
      }
    }
    const auto role = role_of(list[i][fields.role].get<std::string>());
    if (!role) {
      return RowProblem{place + "." + fields.role, "is " + list[i][fields.role].dump() +
                                                       ", expected system, user or assistant"};
    }
    answered = answered || *role == "assistant";
  }
  if (!answered) return RowProblem{fields.list, "has no turn of the assistant to learn from"};
  return std::nullopt;
}

std::vector<Turn> chat_turns(const json& row) {
  const ChatFields fields = chat_fields(row);
  std::vector<Turn> turns;
  for (const json& turn : row[fields.list]) {
    turns.push_back({role_of(turn[fields.role].get<std::string>()).value_or(""),
                     turn[fields.content].get<std::string>()});
  }
  return turns;
}

Result<Cut> chat_sample(const json& row, const Tokenizer& tokenizer, ChatTemplate chat_template,
                        int64_t max_seq_length) {
  const auto text_of = [&](std::optional<int32_t> id) {
    return id ? tokenizer.id_to_token(*id).value_or("") : std::string();
  };
  DSJ_TRY(const auto pieces, render_chat(chat_template, chat_turns(row),
                                         text_of(tokenizer.bos_id()), text_of(tokenizer.eos_id())));
  const EncodeOptions plain{.add_special_tokens = false};  // the template has written its own
  std::string text;
  std::vector<std::pair<size_t, size_t>> learned;  // ends of the tokens before a turn, and with it
  for (const ChatPiece& piece : pieces) {
    if (!piece.learned) {
      text += piece.text;
      continue;
    }
    DSJ_TRY(const auto before, tokenizer.encode(text, plain));
    text += piece.text;
    DSJ_TRY(const auto with, tokenizer.encode(text, plain));
    learned.emplace_back(before.size(), with.size());
  }
  Cut cut;
  DSJ_TRY(cut.sample.input_ids, tokenizer.encode(text, plain));
  cut.sample.labels.assign(cut.sample.input_ids.size(), kIgnoredLabel);
  for (const auto& [first, end] : learned) {
    for (size_t i = first; i < std::min(end, cut.sample.input_ids.size()); ++i) {
      cut.sample.labels[i] = cut.sample.input_ids[i];
    }
  }
  const auto limit = static_cast<size_t>(max_seq_length);
  if (cut.sample.input_ids.size() > limit) {
    cut.truncated = true;
    cut.sample.input_ids.resize(limit);
    cut.sample.labels.resize(limit);
  }
  return cut;
}

// ---- samples

Cut tokens_sample(const json& row, int64_t max_seq_length) {
  Cut cut{.sample = {.input_ids = row["input_ids"].get<std::vector<int32_t>>(),
                     .labels = row["labels"].get<std::vector<int32_t>>()}};
  const auto limit = static_cast<std::size_t>(max_seq_length);
  if (cut.sample.input_ids.size() > limit) {
    cut.truncated = true;
    cut.sample.input_ids.resize(limit);
    cut.sample.labels.resize(limit);
  }
  return cut;
}

Result<Cut> alpaca_sample(const json& row, const Tokenizer& tokenizer, int64_t max_seq_length) {
  const std::string prompt = alpaca_prompt(row["instruction"].get_ref<const std::string&>(),
                                           row.value("input", std::string()));
  const std::string text = prompt + row["output"].get_ref<const std::string&>() +
                           tokenizer.id_to_token(tokenizer.eos_id().value()).value();
  const EncodeOptions whole, limited{.max_length = max_seq_length};
  Cut cut;
  DSJ_TRY(cut.sample.input_ids, tokenizer.encode(text, whole));
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

}  // namespace dsj::data

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

/// A list of integers of which each passes `is_allowed`.
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
  for (const char* chat : {"messages", "conversations"}) {
    if (row.contains(chat)) {
      return std::unexpected(RowProblem{chat,
                                        "chat rows are not supported yet, expected "
                                        "instruction, input, output"});
    }
  }
  return std::unexpected(RowProblem{
      "instruction", "is missing (and there is no input_ids: neither alpaca nor pre-tokenized)"});
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
  if (auto problem =
          check_ids(row, "attention_mask", "1 (padding is added here, leave it out of the file)",
                    [](int64_t value) { return value == 1; })) {
    return problem;
  }
  if (row["attention_mask"].size() != length) {
    return RowProblem{"attention_mask", "is not as long as input_ids"};
  }
  return std::nullopt;
}

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

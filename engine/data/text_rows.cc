// Makes samples of rows that are plain texts: text, prompt and completion, segments; and
// dispatches between all kinds. Functions of rows.h.
#include <algorithm>
#include <utility>

#include "engine/data/rows.h"

namespace dsj::data {
namespace {

using nlohmann::json;

/// Checks a field that must be a text.
std::optional<RowProblem> check_text(const json& row, const char* field) {
  const auto found = row.find(field);
  if (found == row.end()) return RowProblem{field, "is missing"};
  if (!found->is_string()) return RowProblem{field, "is " + kind_of(*found) + ", expected text"};
  return std::nullopt;
}

std::optional<RowProblem> check_one_text(const json& row) {
  if (auto problem = check_text(row, "text")) return problem;
  if (!holds(row, "text")) return RowProblem{"text", "is empty"};
  return std::nullopt;
}

std::optional<RowProblem> check_prompt(const json& row) {
  if (auto problem = check_text(row, "prompt")) return problem;
  if (auto problem = check_text(row, "completion")) return problem;
  if (holds(row, "tools"))
    return RowProblem{"tools", "holds tools, which a plain-text prompt does not support"};
  return std::nullopt;
}

std::optional<RowProblem> check_segments(const json& row) {
  const json& list = row["segments"];
  if (!list.is_array())
    return RowProblem{"segments", "is " + kind_of(list) + ", expected a list of {text, label}"};
  bool learned = false;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = "segments[" + std::to_string(i) + "]";
    if (!list[i].is_object())
      return RowProblem{place, "is " + kind_of(list[i]) + ", expected an object"};
    if (auto problem = check_text(list[i], "text"))
      return RowProblem{place + ".text", problem->what};
    const json label = list[i].value("label", json());
    if (!label.is_boolean())
      return RowProblem{place + ".label", "is " + kind_of(label) + ", expected true or false"};
    learned = learned || label == json(true);
  }
  if (!learned) return RowProblem{"segments", "has no part with label true to learn from"};
  return std::nullopt;
}

/// Appends the eos token, unless the text ends with it.
std::string ended(std::string text, const Tokenizer& tokenizer) {
  const std::string eos = tokenizer.id_to_token(tokenizer.eos_id().value()).value();
  return text.ends_with(eos) ? text : text + eos;
}

/// The ids of a text, cut to max_seq_length; each is a target.
Result<Cut> learned_text(const std::string& text, const Tokenizer& tokenizer, bool special,
                         int64_t max_seq_length) {
  Cut cut;
  EncodeOptions options{.add_special_tokens = special, .max_length = max_seq_length + 1};
  DSJ_TRY(cut.sample.input_ids, tokenizer.encode(text, options));
  cut.truncated = std::ssize(cut.sample.input_ids) > max_seq_length;
  if (cut.truncated) {
    options.max_length = max_seq_length;
    DSJ_TRY(cut.sample.input_ids, tokenizer.encode(text, options));
  }
  cut.sample.labels = cut.sample.input_ids;
  return cut;
}

/// Removes the eos token at the end from the targets, if `learning` says so.
void choose_end(const Learning& learning, const Tokenizer& tokenizer, Cut& cut) {
  auto& labels = cut.sample.labels;
  if (learning.ends == EndTokens::None && !labels.empty() && labels.back() == tokenizer.eos_id())
    labels.back() = kIgnoredLabel;
}

/// As in TRL: targets begin at the first token where the whole differs from the prompt alone.
Result<Cut> prompted(const std::string& prompt, const std::string& whole,
                     const Tokenizer& tokenizer, bool special, const Learning& learning,
                     int64_t max_seq_length) {
  DSJ_TRY(Cut cut, learned_text(whole, tokenizer, special, max_seq_length));
  if (learning.inputs) return cut;
  DSJ_TRY(const auto asked,
          tokenizer.encode(prompt, {.add_special_tokens = special, .max_length = max_seq_length}));
  const auto differ = std::ranges::mismatch(asked, cut.sample.input_ids).in1;
  std::fill_n(cut.sample.labels.begin(), differ - asked.begin(), kIgnoredLabel);
  return cut;
}

Result<Cut> segments_sample(const json& row, const Tokenizer& tokenizer, const Learning& learning,
                            int64_t max_seq_length) {
  Cut cut;
  auto& ids = cut.sample.input_ids;
  auto& labels = cut.sample.labels;
  for (const json& segment : row["segments"]) {
    const int64_t left = max_seq_length - std::ssize(ids);
    DSJ_TRY(auto part, tokenizer.encode(segment["text"].get_ref<const std::string&>(),
                                        {.add_special_tokens = false, .max_length = left + 1}));
    if (std::ssize(part) > left) {
      cut.truncated = true;
      part.resize(static_cast<size_t>(left));
    }
    const bool learned = learning.inputs || segment["label"].get<bool>();
    ids.insert(ids.end(), part.begin(), part.end());
    if (learned)
      labels.insert(labels.end(), part.begin(), part.end());
    else
      labels.resize(ids.size(), kIgnoredLabel);
    if (cut.truncated) break;
  }
  return cut;
}

Result<Cut> chat_prompt_sample(const ShapedRow& shaped, const Tokenizer& tokenizer,
                               const ChatTemplate& chat_template, const Learning& learning,
                               int64_t max_seq_length) {
  DSJ_TRY(const auto texts, chat_prompt_texts(shaped, chat_template));
  return prompted(texts.prompt, texts.whole, tokenizer, /*special=*/false, learning,
                  max_seq_length);
}

}  // namespace

std::optional<RowProblem> check_row(const ShapedRow& shaped, int64_t vocab_size) {
  switch (shaped.kind) {
    case RowKind::Alpaca:
      return check_alpaca(shaped.row);
    case RowKind::Tokens:
      return check_tokens(shaped.row, vocab_size);
    case RowKind::Text:
      return check_one_text(shaped.row);
    case RowKind::Prompt:
      return check_prompt(shaped.row);
    case RowKind::Segments:
      return check_segments(shaped.row);
    case RowKind::Chat:
    case RowKind::ChatPrompt:
      break;
  }
  return check_chat(shaped.row);
}

Result<PromptAndWhole> chat_prompt_texts(const ShapedRow& shaped,
                                         const ChatTemplate& chat_template) {
  DSJ_TRY(const Conversation told, conversation_of(shaped.row, shaped.text));
  const size_t turns = shaped.row[kPromptTurns].get<size_t>() + (takes_system(shaped.row) ? 1 : 0);
  const ChatTemplate form = chat_template.with(told.kwargs);
  PromptAndWhole texts;
  DSJ_TRY(texts.prompt, render_question(form, std::span(told.turns).first(turns), told.tools));
  DSJ_TRY(texts.whole, render_text(form, told.turns, told.tools));
  return texts;
}

Result<Cut> row_sample(const ShapedRow& shaped, const Tokenizer* tokenizer,
                       const ChatTemplate& chat_template, const Learning& learning,
                       int64_t max_seq_length) {
  const json& row = shaped.row;
  switch (shaped.kind) {
    case RowKind::Tokens:
      return tokens_sample(row, learning, max_seq_length);
    case RowKind::Alpaca:
      return alpaca_sample(row, *tokenizer, learning, max_seq_length);
    case RowKind::Chat:
      return chat_sample(row, shaped.text, *tokenizer, chat_template, learning, max_seq_length);
    case RowKind::ChatPrompt:
      return chat_prompt_sample(shaped, *tokenizer, chat_template, learning, max_seq_length);
    case RowKind::Segments:
      return segments_sample(row, *tokenizer, learning, max_seq_length);
    case RowKind::Text:
    case RowKind::Prompt:
      break;
  }
  Cut cut;
  if (shaped.kind == RowKind::Text) {
    DSJ_TRY(cut, learned_text(ended(row["text"].get<std::string>(), *tokenizer), *tokenizer,
                              /*special=*/true, max_seq_length));
  } else {
    const auto prompt = row["prompt"].get<std::string>();
    DSJ_TRY(cut, prompted(prompt, ended(prompt + row["completion"].get<std::string>(), *tokenizer),
                          *tokenizer, /*special=*/true, learning, max_seq_length));
  }
  choose_end(learning, *tokenizer, cut);
  return cut;
}

bool is_empty_text(const ShapedRow& shaped) {
  return shaped.kind == RowKind::Text && shaped.row.value("text", json()) == "";
}

}  // namespace dsj::data

// Makes samples of rows whose answers are compared or judged. Functions of rows.h.
#include <algorithm>
#include <span>
#include <utility>

#include "engine/data/rows.h"

namespace dsj::data {
namespace {

/// The text of a row's prompt, and of the whole row.
struct Texts {
  std::string prompt, whole;
  bool special = true;  ///< add the post-processor's tokens, as no template wrote special tokens
};

Result<Texts> texts_of(const ShapedRow& row, const Tokenizer& tokenizer,
                       const ChatTemplate& chat_template) {
  if (row.kind == RowKind::ChatPrompt) {
    DSJ_TRY(auto texts, chat_prompt_texts(row, chat_template));
    return Texts{std::move(texts.prompt), std::move(texts.whole), false};
  }
  const std::string eos = tokenizer.id_to_token(tokenizer.eos_id().value()).value();
  Texts texts;
  std::string answer;
  if (row.kind == RowKind::Prompt) {
    texts.prompt = row.row["prompt"].get<std::string>();
    answer = row.row["completion"].get<std::string>();
  } else {
    const auto pieces = alpaca_pieces(row.row, "");
    for (size_t i = 0; i + 1 < pieces.size(); ++i)
      texts.prompt += pieces[i].text + (pieces[i].learned ? eos : "");
    answer = pieces.back().text;
  }
  texts.whole = texts.prompt + answer + (answer.ends_with(eos) ? "" : eos);
  return texts;
}

/// Cuts a row's prompt, then the row. True if something was cut.
bool cut_row(std::vector<int32_t>& ids, int64_t& prompt, const PairLengths& lengths) {
  const int64_t before = std::ssize(ids);
  const int64_t most = lengths.max_prompt_length;
  if (most > 0 && prompt > most) {
    ids.erase(ids.begin(), ids.begin() + (prompt - most));
    prompt = most;
  }
  if (const int64_t over = std::ssize(ids) - lengths.max_length; over > 0) {
    if (lengths.keeps_end) {
      ids.erase(ids.begin(), ids.begin() + over);
      prompt = std::max<int64_t>(0, prompt - over);
    } else {
      ids.resize(static_cast<size_t>(lengths.max_length));
      prompt = std::min(prompt, lengths.max_length);
    }
  }
  return std::ssize(ids) < before;
}

/// The sample of a scored pair. `rows`: the chosen row and the rejected one.
Result<Cut> scored_pair(std::span<const std::vector<int32_t>, 2> rows, const nlohmann::json& pair,
                        const Tokenizer& tokenizer) {
  // As in TRL: the tokenizer's, else eos. If eos ends a row, the token before it is scored.
  const auto pad = tokenizer.pad_id() ? tokenizer.pad_id() : tokenizer.eos_id();
  Cut cut;
  Sample& sample = cut.sample;
  const auto margin = pair.find("margin");
  sample.margin = margin == pair.end() || margin->is_null() ? 0 : margin->get<double>();
  for (const auto& row : rows) {
    if (row.empty()) return bad_input("an answer and its prompt have no tokens");
    const int64_t begin = std::ssize(sample.input_ids);
    if (begin > 0) sample.second = begin;
    sample.input_ids.insert(sample.input_ids.end(), row.begin(), row.end());
    sample.labels.resize(sample.input_ids.size(), kIgnoredLabel);
    int64_t at = std::ssize(row) - 1;
    while (at >= 0 && row[static_cast<size_t>(at)] == pad) --at;
    at = std::max<int64_t>(0, at);  // as in transformers, for a row of padding only
    sample.labels[static_cast<size_t>(begin + at)] = row[static_cast<size_t>(at)];
  }
  return cut;
}

}  // namespace

Result<Cut> pair_sample(const ShapedRow& pair, const Tokenizer& tokenizer,
                        const ChatTemplate& chat_template, const PairLengths& lengths) {
  DSJ_TRY(const Texts chosen, texts_of(pair, tokenizer, chat_template));
  DSJ_TRY(const Texts rejected, texts_of(pair.rejected.front(), tokenizer, chat_template));
  const EncodeOptions options{.add_special_tokens = chosen.special};
  DSJ_TRY(const auto asked, tokenizer.encode(chosen.prompt, options));
  std::vector<int32_t> rows[2];
  DSJ_TRY(rows[0], tokenizer.encode(chosen.whole, options));
  DSJ_TRY(rows[1], tokenizer.encode(rejected.whole, options));
  // As ORPOTrainer, also after an answer in turns.
  if (const auto eos = tokenizer.eos_id(); eos && lengths.prompt_learned)
    for (auto& row : rows)
      if (row.empty() || row.back() != *eos) row.push_back(*eos);
  int64_t common = std::ssize(asked);
  for (const auto& row : rows)
    common = std::min(common, std::ranges::mismatch(asked, row).in1 - asked.begin());
  Cut cut;
  auto& ids = cut.sample.input_ids;
  auto& labels = cut.sample.labels;
  int64_t &second = cut.sample.second, &answer = cut.sample.answer;
  if (lengths.scored) return scored_pair(rows, pair.row, tokenizer);
  for (auto& row : rows) {
    int64_t prompt = common;
    cut.truncated = cut_row(row, prompt, lengths) || cut.truncated;
    if (row.empty()) return bad_input("an answer and its prompt have no tokens");
    const bool first = ids.empty();
    second = std::ssize(ids);  // 0 for the first row
    if (first && lengths.prompt_learned) answer = prompt;
    ids.insert(ids.end(), row.begin(), row.end());
    labels.insert(labels.end(), row.begin(), row.end());
    if (!first || !lengths.prompt_learned)
      std::fill_n(labels.begin() + second, prompt, kIgnoredLabel);
  }
  return cut;
}

Result<JudgedIds> judged_ids(const ShapedRow& row, const Tokenizer& tokenizer,
                             const ChatTemplate& chat_template) {
  DSJ_TRY(const Texts texts, texts_of(row, tokenizer, chat_template));
  const EncodeOptions options{.add_special_tokens = texts.special};
  JudgedIds ids;
  DSJ_TRY(ids.prompt, tokenizer.encode(texts.prompt, options));
  DSJ_TRY(ids.answer, tokenizer.encode(texts.whole, options));
  const auto [asked, answered] = std::ranges::mismatch(ids.prompt, ids.answer);
  ids.answer.erase(ids.answer.begin(), answered);
  ids.prompt.erase(asked, ids.prompt.end());
  return ids;
}

Cut judged_sample(const std::vector<int32_t>& prompt, const std::vector<int32_t>& answer, bool good,
                  const PairLengths& lengths) {
  Cut cut;
  Sample& sample = cut.sample;
  sample.good = good;
  sample.input_ids = prompt;
  sample.input_ids.insert(sample.input_ids.end(), answer.begin(), answer.end());
  int64_t asked = std::ssize(prompt);
  cut.truncated = cut_row(sample.input_ids, asked, lengths);
  sample.labels = sample.input_ids;
  std::fill_n(sample.labels.begin(), asked, kIgnoredLabel);
  return cut;
}

}  // namespace dsj::data

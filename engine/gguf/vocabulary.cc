#include "engine/gguf/vocabulary.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "engine/data/chat/template_sources.h"
#include "engine/data/tokenizer/normalizer.h"
#include "engine/data/tokenizer/sentencepiece_model.h"
#include "engine/gguf/pre_tokenizer_name.h"

namespace dsj::gguf {
namespace {

using data::AddedToken;
using data::CutStep;
using data::Metaspace;
using data::NormalStep;
using data::SentencePieceModel;
using data::TokenizerSpec;

constexpr std::string_view kSpace = "\u2581";
constexpr float kAddedScore = -1000, kUnusedScore = -10000;  // as llama.cpp's converter

struct Token {
  std::string text;
  float score = kUnusedScore;
  TokenKind kind = TokenKind::Unused;
};

/// Tokens that are plain in files and that llama.cpp treats as control tokens.
bool looks_special(std::string_view text) {
  const auto between = [&](std::string_view first, std::string_view last) {
    return text.starts_with(first) && text.ends_with(last);
  };
  return text == "<pad>" || text == "<mask>" || text == "<2mass>" || text == "[@BOS@]" ||
         between("<|", "|>") || between("<\uFF5C", "\uFF5C>") || between("<unused", ">");
}

std::optional<int> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const auto digits = token.substr(3, 2);
  if (digits.find_first_not_of("0123456789ABCDEFabcdef") != digits.npos) return std::nullopt;
  return std::stoi(std::string(digits), nullptr, 16);
}

class Vocabulary {
 public:
  Vocabulary(const TokenizerSpec& spec, int64_t size, std::vector<std::string>& notes)
      : spec_(spec), notes_(notes), tokens_(static_cast<size_t>(size)) {
    for (size_t id = 0; id < tokens_.size(); ++id)
      tokens_[id].text = "[PAD" + std::to_string(id) + "]";
  }

  Status set_byte_level(Keys& keys);
  Status set_characters(const SentencePieceModel* model, Keys& keys);
  void set_special(const nlohmann::json& config, Keys& keys);

 private:
  Result<Token*> at(const std::string& text, int32_t id) {
    if (static_cast<size_t>(id) < tokens_.size()) return &tokens_[static_cast<size_t>(id)];
    return bad_input("token '" + text + "' has id " + std::to_string(id) +
                         ", but the model's vocab_size is " + std::to_string(tokens_.size()),
                     spec_.file);
  }
  Status add_vocab();
  Status add_added();
  Status check_characters() const;
  Status set_scores_of_merges();
  bool take_scores(const SentencePieceModel& model);
  std::unexpected<Error> refuse(const std::string& what) const {
    return bad_input(what, spec_.file, "llama.cpp would tokenize texts differently");
  }
  void set_tokens(Keys& keys) const;

  const TokenizerSpec& spec_;
  std::vector<std::string>& notes_;
  std::vector<Token> tokens_;
};

Status Vocabulary::add_vocab() {
  for (const auto& [text, id] : spec_.vocab) {
    DSJ_TRY(Token * token, at(text, id));
    *token = {text, 0, TokenKind::Normal};
  }
  return {};
}

Status Vocabulary::add_added() {
  for (const AddedToken& added : spec_.added) {
    DSJ_TRY(Token * token, at(added.content, added.id));
    const bool control = added.special || looks_special(added.content);
    const bool known = token->kind == TokenKind::Unknown || token->kind == TokenKind::Control;
    if (control && known && token->text == added.content) continue;  // as in tokenizer.model
    *token = {control ? added.content : data::replace_all(added.content, kSpace, " "), kAddedScore,
              control ? TokenKind::Control : TokenKind::UserDefined};
    if (added.single_word || ((added.lstrip || added.rstrip) && !added.special))
      notes_.push_back("GGUF cannot represent the flags single_word, lstrip and rstrip of '" +
                       added.content + "'");
  }
  return {};
}

void Vocabulary::set_tokens(Keys& keys) const {
  std::vector<std::string> texts;
  std::vector<int32_t> kinds;
  for (const Token& token : tokens_) {
    texts.push_back(token.text);
    kinds.push_back(static_cast<int32_t>(token.kind));
  }
  keys.set("tokenizer.ggml.tokens", std::move(texts));
  keys.set("tokenizer.ggml.token_type", std::move(kinds));
}

Status Vocabulary::set_byte_level(Keys& keys) {
  if (spec_.merge_by_id) return refuse("its merges are ranks of tokens (tiktoken), not pairs");
  DSJ_TRY(const std::string pre, pre_tokenizer_name(spec_));
  DSJ_TRY_STATUS(add_vocab());
  DSJ_TRY_STATUS(add_added());
  keys.set("tokenizer.ggml.model", std::string("gpt2"));
  keys.set("tokenizer.ggml.pre", pre);
  set_tokens(keys);
  std::vector<std::string> merges;
  merges.reserve(spec_.merges.size());
  for (const auto& [left, right] : spec_.merges) merges.push_back(left + " " + right);
  keys.set("tokenizer.ggml.merges", std::move(merges));
  if (!spec_.normalizer.steps.empty())
    notes_.push_back("llama.cpp does not compose characters (NFC) as this tokenizer does");
  return {};
}

/// Checks that it works as llama.cpp: spaces become U+2581, nothing is split, and bytes replace
/// characters without a token.
Status Vocabulary::check_characters() const {
  bool shows_spaces = false;
  for (const NormalStep& step : spec_.normalizer.steps) {
    const bool prepends = step.kind == NormalStep::Kind::Prepend && step.text == kSpace;
    const bool replaces = step.kind == NormalStep::Kind::Replace && !step.pattern &&
                          step.find == " " && step.text == kSpace;
    if (!prepends && !replaces)
      return refuse("its normalizer has a step that GGUF cannot represent");
    shows_spaces = shows_spaces || replaces;
  }
  for (const CutStep& step : spec_.steps) {
    if (step.metaspace && step.metaspace->replacement == kSpace && !step.metaspace->split) {
      shows_spaces = true;
      continue;
    }
    // Gemma: no space is left to split at.
    if (shows_spaces && step.match == CutStep::Match::Literal && step.pattern == " ") continue;
    return refuse("its pre-tokenizer has a step that GGUF cannot represent");
  }
  if (!shows_spaces) return refuse("it does not show spaces as U+2581");
  std::array<bool, 256> bytes{};
  for (const auto& [text, id] : spec_.vocab)
    if (const auto byte = byte_of(text)) bytes[static_cast<size_t>(*byte)] = true;
  if (!spec_.characters->byte_fallback || std::ranges::find(bytes, false) != bytes.end())
    return refuse("it has no token for each byte (byte_fallback)");
  return {};
}

/// Takes the scores of tokenizer.model. Returns false if its pieces are not the tokens.
bool Vocabulary::take_scores(const SentencePieceModel& model) {
  for (size_t id = 0; id < std::min(model.pieces.size(), tokens_.size()); ++id) {
    if (tokens_[id].kind != TokenKind::Normal || tokens_[id].text != model.pieces[id].text)
      return false;
  }
  using Type = SentencePieceModel::Type;
  for (size_t id = 0; id < std::min(model.pieces.size(), tokens_.size()); ++id) {
    tokens_[id].score = model.pieces[id].score;
    switch (model.pieces[id].type) {
      case Type::Unknown:
        tokens_[id].kind = TokenKind::Unknown;
        break;
      case Type::Control:
        tokens_[id].kind = TokenKind::Control;
        break;
      case Type::Unused:
        tokens_[id].kind = TokenKind::Unused;
        break;
      case Type::Byte:
        tokens_[id].kind = TokenKind::Byte;
        break;
      case Type::Normal:
      case Type::UserDefined:
        break;
    }
  }
  return true;
}

/// Makes scores from the order of the merges. llama.cpp merges the adjacent pair whose joint text
/// is the token with the highest score. So every split of a token into two must be a merge, and all
/// merges of a token must be consecutive, as in a SentencePiece model.
Status Vocabulary::set_scores_of_merges() {
  std::unordered_map<std::string_view, size_t> plain;  // tokens that can be merged
  for (size_t id = 0; id < tokens_.size(); ++id)
    if (tokens_[id].kind == TokenKind::Normal) plain.emplace(tokens_[id].text, id);
  std::map<std::pair<std::string_view, std::string_view>, size_t> ranks;
  std::unordered_map<std::string, std::pair<size_t, size_t>> span;  // first and last rank
  for (size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    const auto& [left, right] = spec_.merges[rank];
    ranks.emplace(std::pair<std::string_view, std::string_view>(left, right), rank);
    const auto [found, is_new] = span.try_emplace(left + right, rank, rank);
    if (!is_new) {
      if (found->second.second + 1 != rank)
        return refuse("the merges to '" + left + right + "' do not follow each other");
      found->second.second = rank;
    }
  }
  for (const auto& [text, id] : plain) {
    const auto merged = span.find(std::string(text));
    for (size_t at = 1; at < text.size(); ++at) {
      const auto left = text.substr(0, at), right = text.substr(at);
      if (plain.contains(left) && plain.contains(right) && !ranks.contains({left, right}))
        return refuse("'" + std::string(left) + "' and '" + std::string(right) +
                      "' are tokens, and so is both together, but they are not merged");
    }
    if (merged != span.end()) tokens_[id].score = -static_cast<float>(merged->second.first);
  }
  return {};
}

Status Vocabulary::set_characters(const SentencePieceModel* model, Keys& keys) {
  DSJ_TRY_STATUS(check_characters());
  DSJ_TRY_STATUS(add_vocab());
  const bool scored = model && take_scores(*model);
  if (!scored) {
    for (Token& token : tokens_) {
      if (token.kind != TokenKind::Normal) continue;
      if (byte_of(token.text)) token.kind = TokenKind::Byte;
      if (token.text == spec_.characters->unk_token) token.kind = TokenKind::Unknown;
    }
  }
  DSJ_TRY_STATUS(add_added());
  if (!scored) {
    DSJ_TRY_STATUS(set_scores_of_merges());
  }
  keys.set("tokenizer.ggml.model", std::string("llama"));
  keys.set("tokenizer.ggml.pre", std::string("default"));
  set_tokens(keys);
  std::vector<float> scores;
  for (const Token& token : tokens_) scores.push_back(token.score);
  keys.set("tokenizer.ggml.scores", std::move(scores));
  const bool legacy_prefix = std::ranges::find(spec_.normalizer.steps, NormalStep::Kind::Prepend,
                                               &NormalStep::kind) != spec_.normalizer.steps.end();
  bool prefix = legacy_prefix, first = false;
  for (const CutStep& step : spec_.steps) {
    if (!step.metaspace) continue;
    prefix = prefix || step.metaspace->prepend != Metaspace::Prepend::Never;
    first = first || step.metaspace->prepend == Metaspace::Prepend::First;
  }
  keys.set("tokenizer.ggml.add_space_prefix", prefix);
  if (first)
    notes_.push_back(
        "llama.cpp puts a space before a text that begins with one, and before the text behind a "
        "special token; this tokenizer does neither");
  return {};
}

/// Sets the ids of special tokens, and whether they are added around texts.
void Vocabulary::set_special(const nlohmann::json& config, Keys& keys) {
  const auto set_id = [&](const char* role, std::optional<int32_t> id) {
    if (id && static_cast<size_t>(*id) < tokens_.size())
      keys.set("tokenizer.ggml." + std::string(role) + "_token_id", static_cast<uint32_t>(*id));
  };
  set_id("bos", spec_.bos_id);
  set_id("eos", spec_.eos_id);
  const std::pair<const char*, const char*> others[] = {
      {"unknown", "unk_token"}, {"seperator", "sep_token"}, {"mask", "mask_token"}};
  for (const auto& [role, field] : others) {
    const auto value = config.find(field);
    if (value == config.end()) continue;
    const nlohmann::json text =
        value->is_object() ? value->value("content", nlohmann::json()) : *value;
    if (!text.is_string()) continue;
    const auto found = std::ranges::find(tokens_, text.get<std::string>(), &Token::text);
    if (found != tokens_.end()) set_id(role, static_cast<int32_t>(found - tokens_.begin()));
  }
  set_id("padding", spec_.pad_id);
  const auto is_only = [](const std::vector<int32_t>& ids, std::optional<int32_t> id) {
    return id && ids == std::vector<int32_t>{*id};
  };
  const bool bos = is_only(spec_.prefix_ids, spec_.bos_id);
  const bool eos = is_only(spec_.suffix_ids, spec_.eos_id);
  keys.set("tokenizer.ggml.add_bos_token", bos);
  keys.set("tokenizer.ggml.add_eos_token", eos);
  if ((!bos && !spec_.prefix_ids.empty()) || (!eos && !spec_.suffix_ids.empty()))
    notes_.push_back(
        "the tokenizer puts tokens around a text that are not its bos and eos token; GGUF has no "
        "form for them");
}

}  // namespace

Status set_vocabulary(Files& files, const std::string& directory, const TokenizerSpec& spec,
                      int64_t vocab_size, Keys& keys, std::vector<std::string>& notes) {
  Vocabulary vocabulary(spec, vocab_size, notes);
  if (spec.characters) {
    const std::string path = path_join(directory, "tokenizer.model");
    DSJ_TRY(const bool exists, files.exists(path));
    std::optional<SentencePieceModel> model;
    if (exists) {
      DSJ_TRY(const std::string bytes, files.read_all(path));
      if (auto parsed = data::parse_sentencepiece_model(bytes, path)) model = std::move(*parsed);
    }
    DSJ_TRY_STATUS(vocabulary.set_characters(model ? &*model : nullptr, keys));
  } else {
    DSJ_TRY_STATUS(vocabulary.set_byte_level(keys));
  }
  DSJ_TRY(const nlohmann::json config,
          data::json_object_of(files, path_join(directory, "tokenizer_config.json")));
  vocabulary.set_special(config, keys);
  return {};
}

void set_no_vocabulary(Keys& keys) {
  keys.set("tokenizer.ggml.model", std::string("none"));
}

}  // namespace dsj::gguf

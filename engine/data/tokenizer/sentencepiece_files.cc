// Reads tokenizer.model as transformers' converter for Llama's tokenizer does: pieces become
// the vocabulary, scores the merges, and U+2581 represents a space.
#include <algorithm>

#include "engine/data/text/text_file.h"
#include "engine/data/tokenizer/sentencepiece_model.h"
#include "engine/data/tokenizer/string_table.h"
#include "engine/data/tokenizer/tokenizer_files.h"

namespace dsj::data {
namespace {

using nlohmann::json;
using Piece = SentencePieceModel::Piece;
using Type = SentencePieceModel::Type;

constexpr const char* kSpace = "\u2581";

/// Each way to cut a piece into two pieces is a merge. Higher scores have lower ranks.
void add_merges(const SentencePieceModel& model, TokenizerSpec& spec) {
  StringTable ids(model.pieces.size());
  const auto merges = [](const Piece& piece) {
    return piece.type == Type::Normal || piece.type == Type::UserDefined;
  };
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    if (merges(model.pieces[i])) ids.insert(model.pieces[i].text, static_cast<int32_t>(i));
  }
  struct Merge {
    float score;
    int32_t left, right;
  };
  std::vector<Merge> found;
  for (const Piece& piece : model.pieces) {
    if (!merges(piece)) continue;
    const std::string_view text = piece.text;
    const std::size_t before = found.size();
    for (std::size_t at = 1; at < text.size(); ++at) {
      const auto left = ids.find(text.substr(0, at)), right = ids.find(text.substr(at));
      if (left && right) found.push_back({piece.score, *left, *right});
    }
    std::sort(found.begin() + static_cast<std::ptrdiff_t>(before), found.end(),
              [](const Merge& a, const Merge& b) {
                return a.left != b.left ? a.left < b.left : a.right < b.right;
              });
  }
  std::ranges::stable_sort(found, std::greater<>(), &Merge::score);
  for (const Merge& merge : found) {
    spec.merges.emplace_back(model.pieces[static_cast<std::size_t>(merge.left)].text,
                             model.pieces[static_cast<std::size_t>(merge.right)].text);
  }
}

Result<json> config_of(Files& files, const std::string& dir, const char* name) {
  DSJ_TRY(const bool exists, file_exists(files, dir + name));
  if (!exists) return json::object();
  DSJ_TRY(json config, read_json_file(files, dir + name));
  return config.is_object() ? config : json::object();
}

bool is_llama(const json& config, const json& model) {
  const json name = config.value("tokenizer_class", json());
  if (name.is_string()) return name == "LlamaTokenizer" || name == "LlamaTokenizerFast";
  const json type = model.value("model_type", json());
  return type.is_null() || type == "llama" || type == "mistral";
}

}  // namespace

Result<TokenizerSpec> read_sentencepiece(Files& files, const std::string& dir) {
  TokenizerSpec spec;
  spec.file = dir + "/tokenizer.model";
  DSJ_TRY(const json config, config_of(files, dir, "/tokenizer_config.json"));
  DSJ_TRY(const json of_model, config_of(files, dir, "/config.json"));
  if (!is_llama(config, of_model)) {
    return bad_input(
        "only Llama's tokenizer is read from tokenizer.model", spec.file,
        "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) writes tokenizer.json");
  }
  DSJ_TRY(const std::string bytes, files.read_all(spec.file));
  DSJ_TRY(const SentencePieceModel model, parse_sentencepiece_model(bytes, spec.file));

  CharacterForm form{.byte_fallback = model.byte_fallback, .fuse_unk = true};
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const Piece& piece = model.pieces[i];
    const auto id = static_cast<int32_t>(i);
    spec.vocab.emplace_back(piece.text, id);
    if (piece.type == Type::Unknown) form.unk_token = piece.text;
    if (piece.type == Type::Unknown || piece.type == Type::Control ||
        piece.type == Type::UserDefined) {
      spec.added.push_back(
          {.id = id, .content = piece.text, .special = piece.type != Type::UserDefined});
    }
  }
  spec.characters = std::move(form);
  add_merges(model, spec);

  if (config.value("legacy", json()) == false) {
    spec.steps.push_back(
        {.metaspace = Metaspace{.replacement = kSpace,
                                .prepend = model.add_dummy_prefix ? Metaspace::Prepend::First
                                                                  : Metaspace::Prepend::Never,
                                .split = false}});
  } else {
    if (model.add_dummy_prefix) {
      spec.normalizer.steps.push_back({.kind = NormalStep::Kind::Prepend, .text = kSpace});
    }
    spec.normalizer.steps.push_back(
        {.kind = NormalStep::Kind::Replace, .find = " ", .text = kSpace});
  }
  spec.decoders = {{.kind = DecodeStep::Kind::Replace, .find = kSpace, .text = " "},
                   {.kind = DecodeStep::Kind::ByteFallback},
                   {.kind = DecodeStep::Kind::Fuse}};
  if (model.add_dummy_prefix) {
    spec.decoders.push_back({.kind = DecodeStep::Kind::Strip, .text = " ", .start = 1});
  }
  if (config.value("add_bos_token", json(true)) == true && model.bos_id >= 0) {
    spec.prefix_ids = {model.bos_id};
  }
  if (config.value("add_eos_token", json(false)) == true && model.eos_id >= 0) {
    spec.suffix_ids = {model.eos_id};
  }
  DSJ_TRY_STATUS(read_special_tokens(files, dir, "", spec));
  if (!spec.bos_id && model.bos_id >= 0) spec.bos_id = model.bos_id;
  if (!spec.eos_id && model.eos_id >= 0) {
    spec.eos_id = model.eos_id;
    spec.stop_ids.push_back(model.eos_id);
  }
  if (!spec.pad_id && model.pad_id >= 0) spec.pad_id = model.pad_id;
  return spec;
}

}  // namespace dsj::data

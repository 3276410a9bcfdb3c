// Reads tokenizer.json. Every field is either applied or refused by name.
#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <unordered_map>

#include "engine/data/text/text_file.h"
#include "engine/data/text/unicode.h"
#include "engine/data/tokenizer/split_pattern.h"
#include "engine/data/tokenizer/tokenizer_files.h"

namespace dsj::data {
namespace {

using nlohmann::json;

constexpr const char* kBpeHint =
    "models of the type BPE are built here, with the steps that docs/models.md lists";

constexpr std::size_t kStepBytesMax = 256;   // per Prepend or Replace
constexpr std::size_t kStepsMax = 16;        // per list
constexpr std::size_t kGrowthMax = 1 << 16;  // the growth of a text by all Replace steps

std::string type_of(const json& object) {
  return object.is_object() && object.contains("type") && object["type"].is_string()
             ? object["type"].get<std::string>()
             : std::string();
}

/// Returns null if the field does not exist.
const json& field(const json& object, const char* name) {
  static const json null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

class JsonReader {
 public:
  explicit JsonReader(std::string path) { spec_.file = std::move(path); }

  Result<TokenizerSpec> read(const json& root) {
    if (!root.is_object()) return bad_input("is not a JSON object", spec_.file);
    DSJ_TRY_STATUS(model(field(root, "model")));
    DSJ_TRY_STATUS(normalizer(field(root, "normalizer"), "normalizer"));
    DSJ_TRY_STATUS(pre_tokenizer(field(root, "pre_tokenizer"), "pre_tokenizer"));
    if (!byte_level_) spec_.characters = characters_;
    DSJ_TRY_STATUS(post_processor(field(root, "post_processor"), "post_processor"));
    DSJ_TRY_STATUS(spec_.characters ? character_decoder(field(root, "decoder"), "decoder")
                                    : decoder(field(root, "decoder"), "decoder"));
    DSJ_TRY_STATUS(added_tokens(field(root, "added_tokens")));
    return std::move(spec_);
  }

 private:
  std::unexpected<Error> refuse(const std::string& where, const std::string& what) const {
    return bad_input(where + " " + what, spec_.file, kBpeHint);
  }

  /// Refuses `object` if it has a field that is not one of `known`.
  Status only(const json& object, const std::string& where,
              std::initializer_list<const char*> known) const {
    for (const auto& [key, value] : object.items()) {
      if (std::ranges::none_of(known, [&](const char* name) { return key == name; })) {
        return refuse(where + "." + key, "is not supported");
      }
    }
    return {};
  }

  Result<bool> flag(const json& object, const std::string& where, const char* name,
                    bool otherwise) const {
    const json& value = field(object, name);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) return refuse(where + "." + name, "is not true or false");
    return value.get<bool>();
  }

  Status model(const json& model) {
    if (!model.is_object()) return refuse("model", "is not an object");
    const std::string type = type_of(model);
    if (type != "BPE" && !(type.empty() && model.contains("merges"))) {
      return refuse("model.type", "is '" + type + "'");
    }
    DSJ_TRY_STATUS(
        only(model, "model",
             {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
              "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
    const json& dropout = field(model, "dropout");
    if (!dropout.is_null() && dropout != 0.0) return refuse("model.dropout", "is not null");
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const json& affix = field(model, name);
      if (!affix.is_null() && affix != "") {
        return refuse(std::string("model.") + name, "is " + affix.dump());
      }
    }
    // In a byte-level vocabulary these two change nothing, because build() makes sure that
    // every byte of a text is a token.
    DSJ_TRY(characters_.byte_fallback, flag(model, "model", "byte_fallback", false));
    DSJ_TRY(characters_.fuse_unk, flag(model, "model", "fuse_unk", false));
    const json& unk = field(model, "unk_token");
    if (unk.is_string()) characters_.unk_token = unk.get<std::string>();
    if (!unk.is_string() && !unk.is_null()) return refuse("model.unk_token", "is " + unk.dump());
    DSJ_TRY(spec_.whole_pieces, flag(model, "model", "ignore_merges", false));
    DSJ_TRY_STATUS(vocab(field(model, "vocab")));
    return merges(field(model, "merges"));
  }

  Status vocab(const json& vocab) {
    if (!vocab.is_object()) return refuse("model.vocab", "is not an object");
    spec_.vocab.reserve(vocab.size());
    for (const auto& [token, id] : vocab.items()) {
      if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
        return refuse("model.vocab['" + token + "']", "is not an id: " + id.dump());
      }
      spec_.vocab.emplace_back(token, id.get<int32_t>());
    }
    return {};
  }

  Status merges(const json& merges) {
    if (!merges.is_array()) return refuse("model.merges", "is not an array");
    spec_.merges.reserve(merges.size());
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const json& merge = merges[i];
      if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        spec_.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
        continue;
      }
      const std::string text = merge.is_string() ? merge.get<std::string>() : std::string();
      const auto space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos) {
        return refuse("model.merges[" + std::to_string(i) + "]",
                      "is neither \"left right\" nor [left, right]: " + merge.dump());
      }
      spec_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
    return {};
  }

  Status normalizer(const json& normalizer, const std::string& where) {
    if (normalizer.is_null()) return {};
    const std::string type = type_of(normalizer);
    if (type == "Sequence" && field(normalizer, "normalizers").is_array()) {
      DSJ_TRY_STATUS(only(normalizer, where, {"type", "normalizers"}));
      std::size_t i = 0;
      for (const json& inner : normalizer["normalizers"]) {
        DSJ_TRY_STATUS(
            this->normalizer(inner, where + ".normalizers[" + std::to_string(i++) + "]"));
      }
      return {};
    }
    if (spec_.normalizer.steps.size() >= kStepsMax) return refuse(where, "is one step too many");
    DSJ_TRY(NormalStep step, normal_step(normalizer, where, type));
    spec_.normalizer.steps.push_back(std::move(step));
    return {};
  }

  /// A text of the file that is inserted into every text. It must be short, so that several
  /// steps cannot lengthen a text without bound.
  Result<std::string> short_text(const json& value, const std::string& where) const {
    if (!value.is_string() || value.get_ref<const std::string&>().size() > kStepBytesMax) {
      return refuse(where, "is " + value.dump().substr(0, 60) + ", expected a short text");
    }
    return value.get<std::string>();
  }

  struct Pattern {
    std::string text;
    bool literal = false;
  };
  Result<Pattern> pattern(const json& pattern, const std::string& where) const {
    for (const char* kind : {"Regex", "String"}) {
      if (!pattern.is_object() || pattern.size() != 1 || !field(pattern, kind).is_string())
        continue;
      Pattern found{pattern[kind].get<std::string>(), std::string_view(kind) == "String"};
      if (!found.text.empty()) return found;
    }
    return refuse(where, "is neither {\"Regex\": ...} nor {\"String\": ...} with a text");
  }

  /// Records that a step may replace every `shortest` bytes of a text by `text`.
  Status grow(const std::string& text, std::size_t shortest, const std::string& where) {
    growth_ *= std::max<std::size_t>(1, (text.size() + shortest - 1) / shortest);
    if (growth_ <= kGrowthMax) return {};
    return refuse(where, "lengthens text too much, with the steps before");
  }

  Result<NormalStep> normal_step(const json& step, const std::string& where,
                                 const std::string& type) {
    using Kind = NormalStep::Kind;
    NormalStep built;
    static const std::map<std::string, NormalStep> kPlain = {
        {"NFC", {.form = NormalForm::Nfc}},
        {"NFD", {.form = NormalForm::Nfd}},
        {"NFKC", {.form = NormalForm::Nfkc}},
        {"NFKD", {.form = NormalForm::Nfkd}},
        {"Lowercase", {.kind = Kind::Lowercase}},
        {"StripAccents", {.kind = Kind::StripAccents}},
        {"Nmt", {.kind = Kind::Nmt}}};
    if (const auto plain = kPlain.find(type); plain != kPlain.end()) {
      DSJ_TRY_STATUS(only(step, where, {"type"}));
      return plain->second;
    }
    if (type == "Prepend") {
      DSJ_TRY_STATUS(only(step, where, {"type", "prepend"}));
      built.kind = Kind::Prepend;
      DSJ_TRY(built.text, short_text(field(step, "prepend"), where + ".prepend"));
      return built;
    }
    if (type == "Strip") {
      DSJ_TRY_STATUS(only(step, where, {"type", "strip_left", "strip_right"}));
      built.kind = Kind::Strip;
      DSJ_TRY(built.left, flag(step, where, "strip_left", true));
      DSJ_TRY(built.right, flag(step, where, "strip_right", true));
      return built;
    }
    if (type == "Replace") {
      DSJ_TRY_STATUS(only(step, where, {"type", "pattern", "content"}));
      built.kind = Kind::Replace;
      DSJ_TRY(Pattern find, pattern(field(step, "pattern"), where + ".pattern"));
      DSJ_TRY(built.text, short_text(field(step, "content"), where + ".content"));
      if (!find.literal) {
        auto compiled = SplitPattern::compile(find.text);
        if (!compiled) return refuse(where + ".pattern", "is refused: " + compiled.error().message);
        built.pattern = std::make_shared<const SplitPattern>(std::move(*compiled));
      }
      DSJ_TRY_STATUS(grow(built.text, find.literal ? find.text.size() : 1, where));
      built.find = std::move(find.text);
      return built;
    }
    return refuse(where,
                  "is '" + type +
                      "' (NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, Prepend "
                      "and Replace are supported)");
  }

  Result<std::string> one_character(const json& value, const std::string& where) const {
    DSJ_TRY(std::string text, short_text(value, where));
    if (text.empty() || find_invalid_utf8(text) || code_point_at(text, 0).length != text.size()) {
      return refuse(where, "is not one character");
    }
    return text;
  }

  Result<Metaspace> metaspace(const json& object, const std::string& where) const {
    DSJ_TRY_STATUS(
        only(object, where,
             {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}));
    Metaspace built;
    DSJ_TRY(built.replacement, one_character(field(object, "replacement"), where + ".replacement"));
    DSJ_TRY(built.split, flag(object, where, "split", true));
    const json& scheme = field(object, "prepend_scheme");
    if (scheme == "first") {
      built.prepend = Metaspace::Prepend::First;
    } else if (scheme == "never") {
      built.prepend = Metaspace::Prepend::Never;
    } else if (!scheme.is_null() && scheme != "always") {
      return refuse(where + ".prepend_scheme", "is " + scheme.dump().substr(0, 60));
    }
    DSJ_TRY(const bool prefix, flag(object, where, "add_prefix_space", true));
    if (!prefix && !scheme.is_null() && built.prepend != Metaspace::Prepend::Never) {
      return refuse(where + ".add_prefix_space", "is false, prepend_scheme " + scheme.dump());
    }
    if (!prefix) built.prepend = Metaspace::Prepend::Never;
    return built;
  }

  Status pre_tokenizer(const json& pre, const std::string& where) {
    if (pre.is_null()) return {};
    const std::string type = type_of(pre);
    if (type == "Sequence" && field(pre, "pretokenizers").is_array()) {
      DSJ_TRY_STATUS(only(pre, where, {"type", "pretokenizers"}));
      std::size_t i = 0;
      for (const json& inner : pre["pretokenizers"]) {
        DSJ_TRY_STATUS(pre_tokenizer(inner, where + ".pretokenizers[" + std::to_string(i++) + "]"));
      }
      return {};
    }
    if (spec_.steps.size() >= kStepsMax) return refuse(where, "is one step too many");
    CutStep step;
    if (type == "ByteLevel") {
      if (byte_level_) return refuse(where, "is a second ByteLevel");
      DSJ_TRY_STATUS(only(pre, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
      DSJ_TRY(step.add_prefix_space, flag(pre, where, "add_prefix_space", true));
      DSJ_TRY(const bool use_regex, flag(pre, where, "use_regex", true));
      if (use_regex) {
        step.match = CutStep::Match::Pattern;
        step.pattern = kGpt2Pattern;
      }
      if (use_regex || step.add_prefix_space) spec_.steps.push_back(std::move(step));
      byte_level_ = true;
      return {};
    }
    if (type == "Metaspace") {
      if (byte_level_) return refuse(where, "comes after ByteLevel");
      DSJ_TRY(step.metaspace, metaspace(pre, where));
    } else {
      DSJ_TRY(step, cut_step(pre, where, type));
      step.in_byte_alphabet = byte_level_;
    }
    spec_.steps.push_back(std::move(step));
    return {};
  }

  Result<CutStep> cut_step(const json& pre, const std::string& where,
                           const std::string& type) const {
    using Match = CutStep::Match;
    using Behavior = CutStep::Behavior;
    CutStep step;
    if (type == "Split") {
      DSJ_TRY_STATUS(only(pre, where, {"type", "pattern", "behavior", "invert"}));
      DSJ_TRY(Pattern found, pattern(field(pre, "pattern"), where + ".pattern"));
      step.match = found.literal ? Match::Literal : Match::Pattern;
      step.pattern = std::move(found.text);
      DSJ_TRY(step.behavior, behavior(field(pre, "behavior"), where));
      DSJ_TRY(step.invert, flag(pre, where, "invert", false));
    } else if (type == "Digits") {
      DSJ_TRY_STATUS(only(pre, where, {"type", "individual_digits"}));
      step.match = Match::Digit;
      DSJ_TRY(const bool each, flag(pre, where, "individual_digits", false));
      step.behavior = each ? Behavior::Isolated : Behavior::Contiguous;
    } else if (type == "Punctuation") {
      DSJ_TRY_STATUS(only(pre, where, {"type", "behavior"}));
      step.match = Match::Punctuation;
      if (pre.contains("behavior")) {
        DSJ_TRY(step.behavior, behavior(pre["behavior"], where));
      }
    } else if (type == "Whitespace") {
      DSJ_TRY_STATUS(only(pre, where, {"type"}));
      step.match = Match::Pattern;
      step.pattern = whitespace_pattern();
      step.behavior = Behavior::Removed;
      step.invert = true;
    } else if (type == "WhitespaceSplit") {
      DSJ_TRY_STATUS(only(pre, where, {"type"}));
      step.match = Match::WhiteSpace;
      step.behavior = Behavior::Removed;
    } else if (type == "CharDelimiterSplit") {
      DSJ_TRY_STATUS(only(pre, where, {"type", "delimiter"}));
      step.match = Match::Literal;
      DSJ_TRY(step.pattern, one_character(field(pre, "delimiter"), where + ".delimiter"));
      step.behavior = Behavior::Removed;
    } else {
      return refuse(where, "is '" + type +
                               "' (Split, ByteLevel, Digits, Punctuation, Whitespace, "
                               "WhitespaceSplit, CharDelimiterSplit and Metaspace are "
                               "supported)");
    }
    return step;
  }

  Result<CutStep::Behavior> behavior(const json& value, const std::string& where) const {
    using Behavior = CutStep::Behavior;
    static const std::map<std::string, Behavior> kKnown = {
        {"Removed", Behavior::Removed},
        {"Isolated", Behavior::Isolated},
        {"MergedWithPrevious", Behavior::MergedWithPrevious},
        {"MergedWithNext", Behavior::MergedWithNext},
        {"Contiguous", Behavior::Contiguous}};
    const auto found = value.is_string() ? kKnown.find(value.get<std::string>()) : kKnown.end();
    if (found == kKnown.end()) {
      return refuse(where + ".behavior",
                    "is " + value.dump().substr(0, 60) +
                        " (Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous "
                        "are supported)");
    }
    return found->second;
  }

  Status post_processor(const json& post, const std::string& where) {
    if (post.is_null()) return {};
    const std::string type = type_of(post);
    if (type == "ByteLevel") return {};  // changes offsets, not ids
    if (type == "Sequence" && field(post, "processors").is_array()) {
      std::size_t i = 0;
      for (const json& inner : post["processors"]) {
        DSJ_TRY_STATUS(post_processor(inner, where + ".processors[" + std::to_string(i++) + "]"));
      }
      return {};
    }
    if (type == "TemplateProcessing") return post_template(post, where);
    if (type == "RobertaProcessing" || type == "BertProcessing") return post_pair(post, where);
    return refuse(where, "is '" + type +
                             "' (ByteLevel, TemplateProcessing, RobertaProcessing and "
                             "BertProcessing are supported)");
  }

  /// Adds "cls" before the text and "sep" after it; each is [token, id].
  Status post_pair(const json& post, const std::string& where) {
    DSJ_TRY_STATUS(only(post, where, {"type", "sep", "cls", "trim_offsets", "add_prefix_space"}));
    DSJ_TRY_STATUS(only_template(where));
    for (const auto& [name, ids] :
         {std::pair{"cls", &spec_.prefix_ids}, std::pair{"sep", &spec_.suffix_ids}}) {
      const json& pair = field(post, name);
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() ||
          !pair[1].is_number_integer()) {
        return refuse(where + "." + name, "is not [token, id]");
      }
      ids->push_back(pair[1].get<int32_t>());
    }
    return {};
  }

  Status only_template(const std::string& where) const {
    if (spec_.prefix_ids.empty() && spec_.suffix_ids.empty()) return {};
    return refuse(where, "is a second template");
  }

  Status post_template(const json& post, const std::string& where) {
    const json& single = field(post, "single");
    const json& tokens = field(post, "special_tokens");
    if (!single.is_array()) return refuse(where + ".single", "is not an array");
    DSJ_TRY_STATUS(only_template(where));
    int sequences = 0;
    for (std::size_t i = 0; i < single.size(); ++i) {
      const std::string place = where + ".single[" + std::to_string(i) + "]";
      const json& special = single[i].is_object() ? field(single[i], "SpecialToken") : single[i];
      if (single[i].is_object() && single[i].contains("Sequence")) {
        ++sequences;
        continue;
      }
      const json& name = special.is_object() ? field(special, "id") : special;
      const json& token = name.is_string() && tokens.is_object()
                              ? field(tokens, name.get_ref<const std::string&>().c_str())
                              : field(json::object(), "");
      const json& ids = token.is_object() ? field(token, "ids") : token;
      if (!ids.is_array()) return refuse(place, "names no token of special_tokens");
      for (const json& id : ids) {
        if (!id.is_number_integer()) return refuse(place, "has an id that is not an integer");
        (sequences == 0 ? spec_.prefix_ids : spec_.suffix_ids).push_back(id.get<int32_t>());
      }
    }
    if (sequences != 1) return refuse(where + ".single", "does not hold the text exactly once");
    return {};
  }

  Status decoder(const json& decoder, const std::string& where) const {
    if (decoder.is_null() || type_of(decoder) == "ByteLevel") return {};
    const json& inner = field(decoder, "decoders");
    if (type_of(decoder) == "Sequence" && inner.is_array() && !inner.empty() &&
        std::all_of(inner.begin() + 1, inner.end(),
                    [](const json& step) { return type_of(step) == "Fuse"; })) {
      return this->decoder(inner[0], where + ".decoders[0]");
    }
    return refuse(where, "is '" + type_of(decoder) + "' (only ByteLevel is supported)");
  }

  Status character_decoder(const json& decoder, const std::string& where) {
    if (decoder.is_null()) return {};
    const std::string type = type_of(decoder);
    if (spec_.decoders.size() >= kStepsMax) return refuse(where, "is one step too many");
    DecodeStep step;
    if (type == "Sequence" && field(decoder, "decoders").is_array() && !in_sequence_) {
      in_sequence_ = true;
      std::size_t i = 0;
      for (const json& inner : decoder["decoders"]) {
        DSJ_TRY_STATUS(character_decoder(inner, where + ".decoders[" + std::to_string(i++) + "]"));
      }
      return {};
    }
    if (type == "Replace") {
      step.kind = DecodeStep::Kind::Replace;
      DSJ_TRY(Pattern find, pattern(field(decoder, "pattern"), where + ".pattern"));
      if (!find.literal) return refuse(where + ".pattern", "is not {\"String\": ...}");
      step.find = std::move(find.text);
      DSJ_TRY(step.text, short_text(field(decoder, "content"), where + ".content"));
      DSJ_TRY_STATUS(grow(step.text, step.find.size(), where));
    } else if (type == "ByteFallback") {
      step.kind = DecodeStep::Kind::ByteFallback;
    } else if (type == "Fuse") {
      step.kind = DecodeStep::Kind::Fuse;
    } else if (type == "Strip") {
      step.kind = DecodeStep::Kind::Strip;
      DSJ_TRY(step.text, one_character(field(decoder, "content"), where + ".content"));
      for (const auto& [name, count] :
           {std::pair{"start", &step.start}, std::pair{"stop", &step.stop}}) {
        const json& value = field(decoder, name);
        if (!value.is_number_unsigned()) return refuse(where + "." + name, "is not a count");
        *count = value.get<std::size_t>();
      }
    } else if (type == "Metaspace") {
      DSJ_TRY(const Metaspace read, metaspace(decoder, where));
      step = {.kind = DecodeStep::Kind::Metaspace, .find = read.replacement};
      step.start = read.prepend != Metaspace::Prepend::Never;
    } else {
      return refuse(where, "is '" + type +
                               "' (Replace, ByteFallback, Fuse, Strip and Metaspace are "
                               "supported)");
    }
    spec_.decoders.push_back(std::move(step));
    return {};
  }

  Status added_tokens(const json& tokens) {
    if (tokens.is_null()) return {};
    if (!tokens.is_array()) return refuse("added_tokens", "is not an array");
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::string where = "added_tokens[" + std::to_string(i) + "]";
      const json& object = tokens[i];
      if (!object.is_object() || !field(object, "content").is_string() ||
          !field(object, "id").is_number_integer() || object["id"] < 0 ||
          object["id"] > INT32_MAX) {
        return refuse(where, "has no content or no id");
      }
      DSJ_TRY_STATUS(
          only(object, where,
               {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
      AddedToken token{.id = object["id"].get<int32_t>(),
                       .content = object["content"].get<std::string>()};
      DSJ_TRY(token.single_word, flag(object, where, "single_word", false));
      DSJ_TRY(token.lstrip, flag(object, where, "lstrip", false));
      DSJ_TRY(token.rstrip, flag(object, where, "rstrip", false));
      DSJ_TRY(token.special, flag(object, where, "special", false));
      DSJ_TRY(token.normalized, flag(object, where, "normalized", !token.special));
      spec_.added.push_back(std::move(token));
    }
    return {};
  }

  TokenizerSpec spec_;
  CharacterForm characters_;
  bool byte_level_ = false, in_sequence_ = false;
  std::size_t growth_ = 1;
};

}  // namespace

Result<TokenizerSpec> read_tokenizer_json(Files& files, const std::string& path) {
  DSJ_TRY(const json root, read_json_file(files, path));
  return JsonReader(path).read(root);
}

}  // namespace dsj::data

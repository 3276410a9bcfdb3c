// tokenizer.json. Every field is either carried out here or refused by name.
#include <algorithm>
#include <initializer_list>
#include <unordered_map>

#include "engine/data/split_pattern.h"
#include "engine/data/text_file.h"
#include "engine/data/tokenizer_files.h"
#include "engine/data/unicode.h"

namespace dsj::data {
namespace {

using nlohmann::json;

constexpr const char* kBpeHint = "BPE of GPT-2, Qwen2, Llama 2, Llama 3 and Mistral is built here";

constexpr std::size_t kStepBytesMax = 16;  // per Prepend or Replace
constexpr std::size_t kStepsMax = 4;       // per list

std::string type_of(const json& object) {
  return object.is_object() && object.contains("type") && object["type"].is_string()
             ? object["type"].get<std::string>()
             : std::string();
}

/// Null: the field does not exist.
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
    DSJ_TRY_STATUS(form(field(root, "decoder")));
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

  /// Error if a field of `object` is not one of `known`.
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
    // In a byte-level vocabulary they change nothing: build() makes sure that all bytes are tokens.
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
    if (type == "NFC") {
      if (!spec_.normalizer.steps.empty()) return refuse(where, "comes after another step");
      spec_.normalizer.nfc = Nfc::Unicode9;
      return only(normalizer, where, {"type"});
    }
    if (type == "Prepend" || type == "Replace") return normal_step(normalizer, where, type);
    if (type == "Sequence" && field(normalizer, "normalizers").is_array()) {
      DSJ_TRY_STATUS(only(normalizer, where, {"type", "normalizers"}));
      std::size_t i = 0;
      for (const json& inner : normalizer["normalizers"]) {
        DSJ_TRY_STATUS(
            this->normalizer(inner, where + ".normalizers[" + std::to_string(i++) + "]"));
      }
      return {};
    }
    return refuse(where, "is '" + type + "' (NFC, Prepend and Replace are what is supported)");
  }

  /// A text of the file that goes into every text. It must be short, so that steps cannot pile it
  /// up.
  Result<std::string> short_text(const json& value, const std::string& where) const {
    if (!value.is_string() || value.get_ref<const std::string&>().size() > kStepBytesMax) {
      return refuse(where, "is " + value.dump().substr(0, 60) + ", expected a short text");
    }
    return value.get<std::string>();
  }

  Result<std::string> literal(const json& pattern, const std::string& where) const {
    const json& text = pattern.is_object() ? field(pattern, "String") : pattern;
    if (!pattern.is_object() || !text.is_string() || text == "" || pattern.size() != 1) {
      return refuse(where, "is not {\"String\": ...}");
    }
    return short_text(text, where);
  }

  Status normal_step(const json& step, const std::string& where, const std::string& type) {
    NormalStep built;
    if (spec_.normalizer.steps.size() >= kStepsMax) return refuse(where, "is one step too many");
    if (type == "Prepend") {
      DSJ_TRY_STATUS(only(step, where, {"type", "prepend"}));
      DSJ_TRY(built.text, short_text(field(step, "prepend"), where + ".prepend"));
    } else {
      DSJ_TRY_STATUS(only(step, where, {"type", "pattern", "content"}));
      built.kind = NormalStep::Kind::Replace;
      DSJ_TRY(built.find, literal(field(step, "pattern"), where + ".pattern"));
      DSJ_TRY(built.text, short_text(field(step, "content"), where + ".content"));
    }
    spec_.normalizer.steps.push_back(std::move(built));
    return {};
  }

  /// Byte-level or SentencePiece's form: the pre-tokenizer says it, else byte fallback.
  Status form(const json& decoder) {
    if (byte_level_) {
      if (characters_.byte_fallback) return refuse("model.byte_fallback", "is true with ByteLevel");
      if (!spec_.normalizer.steps.empty()) {
        return refuse("normalizer", "has Prepend or Replace together with ByteLevel");
      }
      return {};
    }
    const bool by_decoder = type_of(decoder) == "Sequence" || type_of(decoder) == "Metaspace";
    if (!spec_.stages.empty() || !(spec_.metaspace || characters_.byte_fallback || by_decoder)) {
      return refuse("pre_tokenizer",
                    "has no ByteLevel step, and the file is not of SentencePiece's form");
    }
    spec_.characters = characters_;
    return {};
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
    if (byte_level_) return refuse(where, "comes after ByteLevel");
    if (spec_.metaspace) return refuse(where, "comes after Metaspace");
    if (type == "Sequence" && field(pre, "pretokenizers").is_array()) {
      DSJ_TRY_STATUS(only(pre, where, {"type", "pretokenizers"}));
      std::size_t i = 0;
      for (const json& inner : pre["pretokenizers"]) {
        DSJ_TRY_STATUS(pre_tokenizer(inner, where + ".pretokenizers[" + std::to_string(i++) + "]"));
      }
      return {};
    }
    if (type == "ByteLevel") {
      DSJ_TRY_STATUS(only(pre, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
      SplitStage stage;
      DSJ_TRY(stage.add_prefix_space, flag(pre, where, "add_prefix_space", true));
      DSJ_TRY(const bool use_regex, flag(pre, where, "use_regex", true));
      if (use_regex) stage.pattern = kGpt2Pattern;
      if (use_regex || stage.add_prefix_space) spec_.stages.push_back(stage);
      byte_level_ = true;
      return {};
    }
    if (type == "Split") return split(pre, where);
    if (type == "Metaspace") {
      if (!spec_.stages.empty()) return refuse(where, "comes after Split");
      DSJ_TRY(spec_.metaspace, metaspace(pre, where));
      return {};
    }
    return refuse(where,
                  "is '" + type + "' (Split, ByteLevel and Metaspace are what is supported)");
  }

  Status split(const json& pre, const std::string& where) {
    DSJ_TRY_STATUS(only(pre, where, {"type", "pattern", "behavior", "invert"}));
    SplitStage stage;
    const json& pattern = field(pre, "pattern");
    for (const char* kind : {"Regex", "String"}) {
      if (!pattern.is_object() || !field(pattern, kind).is_string()) continue;
      stage.pattern = pattern[kind].get<std::string>();
      stage.literal = std::string_view(kind) == "String";
    }
    if (stage.pattern.empty()) {
      return refuse(where + ".pattern", "is neither {\"Regex\": ...} nor {\"String\": ...}");
    }
    const json& behavior = field(pre, "behavior");
    if (behavior != "Isolated" && behavior != "Removed") {
      return refuse(where + ".behavior",
                    "is " + behavior.dump() + " (Isolated and Removed are what is supported)");
    }
    stage.drop_matches = behavior == "Removed";
    DSJ_TRY(stage.invert, flag(pre, where, "invert", false));
    spec_.stages.push_back(stage);
    return {};
  }

  Status post_processor(const json& post, const std::string& where) {
    if (post.is_null()) return {};
    const std::string type = type_of(post);
    if (type == "ByteLevel") return {};  // moves offsets, no ids
    if (type == "Sequence" && field(post, "processors").is_array()) {
      std::size_t i = 0;
      for (const json& inner : post["processors"]) {
        DSJ_TRY_STATUS(post_processor(inner, where + ".processors[" + std::to_string(i++) + "]"));
      }
      return {};
    }
    if (type == "TemplateProcessing") return post_template(post, where);
    return refuse(where,
                  "is '" + type + "' (ByteLevel and TemplateProcessing are what is supported)");
  }

  Status post_template(const json& post, const std::string& where) {
    const json& single = field(post, "single");
    const json& tokens = field(post, "special_tokens");
    if (!single.is_array()) return refuse(where + ".single", "is not an array");
    if (!spec_.prefix_ids.empty() || !spec_.suffix_ids.empty()) {
      return refuse(where, "is a second template");
    }
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
        if (!id.is_number_integer()) return refuse(place, "has an id that is no integer");
        (sequences == 0 ? spec_.prefix_ids : spec_.suffix_ids).push_back(id.get<int32_t>());
      }
    }
    if (sequences != 1) return refuse(where + ".single", "does not hold the text exactly once");
    return {};
  }

  Status decoder(const json& decoder, const std::string& where) const {
    if (decoder.is_null() || type_of(decoder) == "ByteLevel") return {};
    const json& inner = field(decoder, "decoders");
    if (type_of(decoder) == "Sequence" && inner.is_array() && inner.size() == 1) {
      return this->decoder(inner[0], where + ".decoders[0]");
    }
    return refuse(where, "is '" + type_of(decoder) + "' (ByteLevel is what is supported)");
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
      DSJ_TRY(step.find, literal(field(decoder, "pattern"), where + ".pattern"));
      DSJ_TRY(step.text, short_text(field(decoder, "content"), where + ".content"));
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
        if (!value.is_number_unsigned()) return refuse(where + "." + name, "is no count");
        *count = value.get<std::size_t>();
      }
    } else if (type == "Metaspace") {
      DSJ_TRY(const Metaspace read, metaspace(decoder, where));
      step = {.kind = DecodeStep::Kind::Metaspace, .find = read.replacement};
      step.start = read.prepend != Metaspace::Prepend::Never;
    } else {
      return refuse(where, "is '" + type +
                               "' (Replace, ByteFallback, Fuse, Strip and Metaspace are what is "
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
};

}  // namespace

Result<TokenizerSpec> read_tokenizer_json(Files& files, const std::string& path) {
  DSJ_TRY(const json root, read_json_file(files, path));
  return JsonReader(path).read(root);
}

}  // namespace dsj::data

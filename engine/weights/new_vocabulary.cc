#include "engine/weights/new_vocabulary.h"

#include <nlohmann/json.hpp>

namespace dsj::weights {
namespace {

using nlohmann::ordered_json;

ordered_json added_token(const NewToken& token) {
  return {{"content", token.text}, {"single_word", false},         {"lstrip", false},
          {"rstrip", false},       {"normalized", !token.special}, {"special", token.special}};
}

void extend_tokenizer(ordered_json& tokenizer, const NewVocabulary& vocabulary) {
  for (const NewToken& token : vocabulary.tokens) {
    ordered_json entry = {{"id", token.id}};
    entry.update(added_token(token));
    tokenizer["added_tokens"].push_back(std::move(entry));
  }
}

void extend_tokenizer_config(ordered_json& config, const NewVocabulary& vocabulary) {
  for (const NewToken& token : vocabulary.tokens) {
    if (config.contains("added_tokens_decoder"))
      config["added_tokens_decoder"][std::to_string(token.id)] = added_token(token);
    for (const char* list : {"additional_special_tokens", "extra_special_tokens"})
      if (token.special && config.contains(list) && config[list].is_array())
        config[list].push_back(token.text);
  }
}

}  // namespace

std::string with_vocabulary(std::string_view file_name, std::string content,
                            const NewVocabulary& vocabulary) {
  const bool config = file_name == "config.json", tokenizer = file_name == "tokenizer.json",
             settings = file_name == "tokenizer_config.json",
             added = file_name == "added_tokens.json";
  if (!config && !tokenizer && !settings && !added) return content;
  auto object = ordered_json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return content;
  if (config) {
    // A part's config may leave out a size that is its class's default.
    const bool part = object.contains("text_config") && object["text_config"].is_object();
    if (part) object["text_config"]["vocab_size"] = vocabulary.rows;
    if (!part || object.contains("vocab_size")) object["vocab_size"] = vocabulary.rows;
  }
  if (tokenizer) extend_tokenizer(object, vocabulary);
  if (settings) extend_tokenizer_config(object, vocabulary);
  for (const NewToken& token : vocabulary.tokens)
    if (added) object[token.text] = token.id;
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace dsj::weights

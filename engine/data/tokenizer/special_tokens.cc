// Finds the special tokens and their roles in tokenizer_config.json, special_tokens_map.json,
// added_tokens.json, generation_config.json and config.json, in transformers' order of precedence.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "engine/data/text/text_file.h"
#include "engine/data/tokenizer/string_table.h"
#include "engine/data/tokenizer/tokenizer_files.h"

namespace dsj::data {
namespace {

using nlohmann::json;

/// Classes that make their post-processor from add_bos_token and add_eos_token (transformers 4).
constexpr std::array<std::string_view, 6> kRebuildsPostProcessor = {
    "LlamaTokenizer",         "LlamaTokenizerFast", "CodeLlamaTokenizer",
    "CodeLlamaTokenizerFast", "GemmaTokenizer",     "GemmaTokenizerFast"};

/// Returns the file's JSON object, an empty one if the file does not exist.
Result<json> optional_object(Files& files, const std::string& path) {
  DSJ_TRY(const bool exists, file_exists(files, path));
  if (!exists) return json::object();
  DSJ_TRY(json root, read_json_file(files, path));
  if (!root.is_object()) return bad_input("is not a JSON object", path);
  return root;
}

/// A token as it is written in the config files: "text" or {"content": "text", ...}.
std::optional<std::string> token_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return std::nullopt;
}

class SpecialTokens {
 public:
  SpecialTokens(std::string dir, TokenizerSpec& spec) : dir_(std::move(dir)), spec_(spec) {
    for (const auto& [token, id] : spec_.vocab) vocab_.insert(token, id);
    id_of_ = vocab_;
    for (const AddedToken& token : spec_.added) id_of_.insert(token.content, token.id);
  }

  Status read(Files& files, const std::string& default_special) {
    DSJ_TRY(const json config, optional_object(files, dir_ + "/tokenizer_config.json"));
    DSJ_TRY(const json map, optional_object(files, dir_ + "/special_tokens_map.json"));
    DSJ_TRY(const json generation, optional_object(files, dir_ + "/generation_config.json"));
    DSJ_TRY(const json model, optional_object(files, dir_ + "/config.json"));
    DSJ_TRY(const json added, optional_object(files, dir_ + "/added_tokens.json"));
    DSJ_TRY_STATUS(added_tokens_decoder(config));
    DSJ_TRY_STATUS(added_tokens_json(added, config, map));
    if (!default_special.empty()) DSJ_TRY_STATUS(add_default(default_special));
    DSJ_TRY_STATUS(check_added_ids());
    DSJ_TRY_STATUS(roles(config, dir_ + "/tokenizer_config.json"));
    DSJ_TRY_STATUS(roles(map, dir_ + "/special_tokens_map.json"));
    DSJ_TRY_STATUS(follow_switches(config));
    DSJ_TRY_STATUS(check_switches(config));
    DSJ_TRY_STATUS(ids(generation, dir_ + "/generation_config.json", true));
    DSJ_TRY_STATUS(ids(model, dir_ + "/config.json", false));
    if (!default_special.empty() && !spec_.eos_id) spec_.eos_id = id_of_.find(default_special);
    if (spec_.eos_id && std::ranges::find(spec_.stop_ids, *spec_.eos_id) == spec_.stop_ids.end()) {
      spec_.stop_ids.insert(spec_.stop_ids.begin(), *spec_.eos_id);
    }
    return check_template();
  }

 private:
  /// Hugging Face's loader numbers added tokens itself: the vocabulary's id, else the next free
  /// one. It would read a file with other ids differently.
  Status check_added_ids() const {
    std::unordered_map<std::string, int32_t> numbered;
    int32_t next = static_cast<int32_t>(vocab_.size());
    for (const AddedToken& token : spec_.added) {
      const auto known = vocab_.find(token.content);
      const auto [place, is_new] = numbered.try_emplace(token.content, known.value_or(next));
      next += is_new && !known;
      const int32_t expected = place->second;
      if (expected != token.id) {
        return bad_input("added token '" + token.content + "' has id " + std::to_string(token.id) +
                             ", but Hugging Face's loader gives it " + std::to_string(expected),
                         spec_.file);
      }
    }
    return {};
  }

  Status added_tokens_decoder(const json& config) {
    const std::string file = dir_ + "/tokenizer_config.json";
    const auto decoder = config.find("added_tokens_decoder");
    if (decoder == config.end()) return {};
    if (!decoder->is_object()) return bad_input("added_tokens_decoder is not an object", file);
    std::vector<AddedToken> tokens;
    for (const auto& [key, value] : decoder->items()) {
      const auto text = token_text(value);
      const bool is_id = !key.empty() && key.size() < 10 &&
                         key.find_first_not_of("0123456789") == std::string::npos;
      if (!text || !is_id || !value.is_object()) {
        return bad_input("added_tokens_decoder['" + key + "'] is not a token", file);
      }
      const auto flag = [&value](const char* name, bool otherwise) {
        const auto found = value.find(name);
        return found != value.end() && found->is_boolean() ? found->get<bool>() : otherwise;
      };
      const bool special = flag("special", false);
      tokens.push_back({.id = std::stoi(key),
                        .content = *text,
                        .single_word = flag("single_word", false),
                        .lstrip = flag("lstrip", false),
                        .rstrip = flag("rstrip", false),
                        .normalized = flag("normalized", !special),
                        .special = special});
    }
    std::ranges::sort(tokens, {}, &AddedToken::id);
    for (AddedToken& token : tokens) DSJ_TRY_STATUS(add(std::move(token), file));
    return {};
  }

  /// added_tokens.json, {token: id}: written by slow tokenizers before added_tokens_decoder
  /// existed. Tokens with a role are special.
  Status added_tokens_json(const json& added, const json& config, const json& map) {
    std::vector<std::string> with_role;
    for (const json* object : {&config, &map}) {
      for (const auto& [key, value] : object->items()) {
        const json list = value.is_array() ? value : json::array({value});
        if (!key.ends_with("_token") && key != "additional_special_tokens") continue;
        for (const json& entry : list) with_role.push_back(token_text(entry).value_or(""));
      }
    }
    const std::string file = dir_ + "/added_tokens.json";
    std::vector<AddedToken> tokens;
    for (const auto& [text, id] : added.items()) {
      if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
        return bad_input("token '" + text + "' has no id: " + id.dump(), file);
      }
      const bool special = std::ranges::find(with_role, text) != with_role.end();
      tokens.push_back(
          {.id = id.get<int32_t>(), .content = text, .normalized = !special, .special = special});
    }
    std::ranges::sort(tokens, {}, &AddedToken::id);
    for (AddedToken& token : tokens) {
      const bool known =
          std::ranges::find(spec_.added, token.content, &AddedToken::content) != spec_.added.end();
      if (known && id_of_.find(token.content) == token.id) continue;
      DSJ_TRY_STATUS(add(std::move(token), file));
    }
    return {};
  }

  /// Adds the default special token of a tokenizer's class, for roles that no file names.
  Status add_default(const std::string& text) {
    int32_t next = 0;
    for (std::size_t i = 0; i < id_of_.size(); ++i) next = std::max(next, id_of_.id(i) + 1);
    const auto known = id_of_.find(text);
    if (std::ranges::find(spec_.added, text, &AddedToken::content) != spec_.added.end()) return {};
    return add({.id = known.value_or(next), .content = text, .special = true}, spec_.file);
  }

  /// Adds a token, or replaces the flags of an existing one.
  Status add(AddedToken token, const std::string& file) {
    const auto known = id_of_.find(token.content);
    if (known && *known != token.id) {
      return bad_input("token '" + token.content + "' has id " + std::to_string(token.id) +
                           ", but " + std::to_string(*known) + " in " + spec_.file,
                       file);
    }
    id_of_.insert(token.content, token.id);
    const auto found = std::ranges::find(spec_.added, token.content, &AddedToken::content);
    if (found == spec_.added.end()) {
      spec_.added.push_back(std::move(token));
    } else {
      *found = std::move(token);
    }
    return {};
  }

  Status roles(const json& object, const std::string& file) {
    struct Role {
      const char* name;
      std::optional<int32_t>* id;
    };
    std::optional<int32_t> unused;
    for (const Role role : {Role{"bos_token", &spec_.bos_id},
                            {"eos_token", &spec_.eos_id},
                            {"pad_token", &spec_.pad_id},
                            {"unk_token", &unused}}) {
      const auto value = object.find(role.name);
      if (value == object.end() || value->is_null()) continue;
      DSJ_TRY(const int32_t id, special(*value, role.name, file));
      if (!role.id->has_value()) *role.id = id;
    }
    const auto more = object.find("additional_special_tokens");
    if (more != object.end() && more->is_array()) {
      for (const json& value : *more) {
        DSJ_TRY_STATUS(special(value, "additional_special_tokens", file));
      }
    }
    return {};
  }

  /// Returns the id of a token that has a role. If it was not added before, adds it as special.
  Result<int32_t> special(const json& value, const std::string& role, const std::string& file) {
    const auto text = token_text(value);
    if (!text) return bad_input(role + " is neither a text nor a token: " + value.dump(), file);
    const auto known = id_of_.find(*text);
    if (!known) {
      return bad_input(role + " '" + *text + "' is not a token of " + spec_.file, file);
    }
    if (std::ranges::find(spec_.added, *text, &AddedToken::content) == spec_.added.end()) {
      spec_.added.push_back({.id = *known, .content = *text, .special = true});
    }
    return *known;
  }

  /// add_bos_token and add_eos_token, if they are set and contradict the post-processor. The
  /// classes of kRebuildsPostProcessor follow them in transformers 4. Version 5 ignores them if
  /// there is a tokenizer.json (PreTrainedTokenizerBase._from_pretrained), and other classes
  /// always did. If any version follows them, so does this function, as the file's author
  /// intended, with a note. Without a tokenizer.json version 5 follows both.
  Status follow_switches(const json& config) {
    const bool has_json = spec_.file.ends_with("/tokenizer.json");
    if (!has_json && !spec_.file.ends_with("/vocab.json")) return {};  // read with the file
    const auto name = config.find("tokenizer_class");
    const bool follows = !has_json || (name != config.end() && name->is_string() &&
                                       std::ranges::find(kRebuildsPostProcessor,
                                                         name->get_ref<const std::string&>()) !=
                                           kRebuildsPostProcessor.end());
    struct Switch {
      const char *name, *role;
      std::optional<int32_t> id;
      std::vector<int32_t>& ids;
    };
    for (const Switch& one :
         {Switch{"add_bos_token", "bos_token", spec_.bos_id, spec_.prefix_ids},
          Switch{"add_eos_token", "eos_token", spec_.eos_id, spec_.suffix_ids}}) {
      const auto value = config.find(one.name);
      if (value == config.end() || !value->is_boolean()) continue;
      const bool wanted = value->get<bool>();
      const std::string said =
          dir_ + "/tokenizer_config.json: " + one.name + " is " + value->dump();
      if (!follows) {
        if (wanted != one.ids.empty()) continue;
        spec_.notes.push_back(said + ", but the post-processor of tokenizer.json adds " +
                              (wanted ? "no token" : "a token") +
                              ", and that is what counts, as in transformers");
        continue;
      }
      if (wanted && !one.id) {
        return bad_input(std::string(one.name) + " is true, but there is no " + one.role,
                         dir_ + "/tokenizer_config.json");
      }
      const std::vector<int32_t> ids = wanted ? std::vector{*one.id} : std::vector<int32_t>{};
      if (ids == one.ids) continue;
      one.ids = ids;
      if (!has_json) continue;
      spec_.notes.push_back(said +
                            ", and this is followed, as by transformers 4; transformers 5 reads "
                            "the post-processor of tokenizer.json alone, which says otherwise");
    }
    return {};
  }

  /// Refuses settings with which transformers would change the tokenizer itself.
  Status check_switches(const json& config) const {
    const std::string file = dir_ + "/tokenizer_config.json";
    const auto prefix = config.find("add_prefix_space");
    const auto prepends = [](const CutStep& step) {
      return step.add_prefix_space ||
             (step.metaspace && step.metaspace->prepend != Metaspace::Prepend::Never);
    };
    const bool has_prefix = std::ranges::any_of(spec_.steps, prepends) ||
                            std::ranges::find(spec_.normalizer.steps, NormalStep::Kind::Prepend,
                                              &NormalStep::kind) != spec_.normalizer.steps.end();
    if (prefix != config.end() && prefix->is_boolean() && *prefix != has_prefix) {
      return bad_input("add_prefix_space is " + prefix->dump() + ", but the pre-tokenizer of " +
                           spec_.file + " says otherwise",
                       file);
    }
    const auto wants = [&config](const char* name) {
      const auto found = config.find(name);
      return found != config.end() && *found == true;
    };
    if (spec_.file.ends_with("/tokenizer.json")) return {};
    if (wants("add_bos_token") && spec_.prefix_ids.empty()) {
      return bad_input("add_bos_token is true, but no post-processor adds one", file);
    }
    if (wants("add_eos_token") && spec_.suffix_ids.empty()) {
      return bad_input("add_eos_token is true, but no post-processor adds one", file);
    }
    return {};
  }

  /// Ids for roles that have no token text. The first of a list is eos; all of them end generation.
  Status ids(const json& object, const std::string& file, bool stops) {
    struct Role {
      const char* name;
      std::optional<int32_t>* id;
    };
    for (const Role role : {Role{"bos_token_id", &spec_.bos_id},
                            {"eos_token_id", &spec_.eos_id},
                            {"pad_token_id", &spec_.pad_id}}) {
      const auto value = object.find(role.name);
      if (value == object.end() || value->is_null()) continue;
      const json list = value->is_array() ? *value : json::array({*value});
      for (const json& entry : list) {
        if (!entry.is_number_integer()) {
          return bad_input(std::string(role.name) + " is not an id: " + value->dump(), file);
        }
        if (entry < 0) continue;  // old Llama configs write -1 for "none"
        const bool used = !role.id->has_value();
        if (!is_known(entry.get<int64_t>())) {
          if (!used) continue;
          return bad_input(std::string(role.name) + " " + entry.dump() +
                               " is not in the vocabulary of " + spec_.file,
                           file);
        }
        if (used) *role.id = entry.get<int32_t>();
        if (stops && role.id == &spec_.eos_id) spec_.stop_ids.push_back(entry.get<int32_t>());
      }
    }
    return {};
  }

  bool is_known(int64_t id) const {
    for (std::size_t i = 0; i < id_of_.size(); ++i) {
      if (id_of_.id(i) == id) return true;
    }
    return false;
  }

  Status check_template() const {
    for (const auto* ids : {&spec_.prefix_ids, &spec_.suffix_ids}) {
      for (const int32_t id : *ids) {
        if (!is_known(id)) {
          return bad_input(
              "the post-processor's id " + std::to_string(id) + " is not in the vocabulary",
              spec_.file);
        }
      }
    }
    return {};
  }

  std::string dir_;
  TokenizerSpec& spec_;
  StringTable vocab_, id_of_;  // without and with added tokens
};

}  // namespace

Status read_special_tokens(Files& files, const std::string& model_dir,
                           const std::string& default_special, TokenizerSpec& spec) {
  return SpecialTokens(model_dir, spec).read(files, default_special);
}

}  // namespace dsj::data

#include "engine/data/chat/chat.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/day.h"
#include "common/template_word.h"
#include "common/text.h"
#include "engine/data/chat/named_templates.h"
#include "engine/data/chat/template_sources.h"

namespace dsj::data {
namespace {

using nlohmann::json;

int64_t hash(std::string_view text, uint64_t from = 0xcbf29ce484222325) {
  for (const char c : text) from = (from ^ static_cast<uint8_t>(c)) * 0x100000001b3;  // FNV-1a
  return static_cast<int64_t>(from);
}

/// The value of strftime_now: a day, so that the ranks of one start agree.
Result<int64_t> date_of_start(const std::string& date) {
  constexpr int64_t kDay = 86400;
  if (!date.empty()) {
    if (const auto seconds = seconds_of_day(date)) return *seconds;
    return bad_input("\"" + date + "\" is not a day, YYYY-MM-DD", "chatDate");
  }
  const char* fixed = std::getenv("SOURCE_DATE_EPOCH");
  if (const auto seconds = fixed ? text::parse_int(fixed) : std::nullopt) return *seconds;
  return static_cast<int64_t>(std::time(nullptr)) / kDay * kDay;
}

/// The template's variables that come from the tokenizer.
jinja::Context tokens_of(const Tokenizer& tokenizer, const json& config) {
  jinja::Context tokens;
  const auto add = [&](const char* name, std::optional<int32_t> id) {
    const auto text = id ? tokenizer.id_to_token(*id) : std::nullopt;
    if (text) tokens.emplace_back(name, jinja::Value(*text));
  };
  add("bos_token", tokenizer.bos_id());
  add("eos_token", tokenizer.eos_id());
  add("pad_token", tokenizer.pad_id());
  for (const char* name : {"unk_token", "sep_token", "cls_token", "mask_token"}) {
    const auto found = config.find(name);
    if (found == config.end()) continue;
    const json& text = found->is_object() ? found->value("content", json()) : *found;
    if (text.is_string()) tokens.emplace_back(name, jinja::Value(text.get<std::string>()));
  }
  return tokens;
}

std::vector<std::string> specials_of(const Tokenizer& tokenizer) {
  std::vector<std::string> specials;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(static_cast<int32_t>(id))) continue;
    auto text = tokenizer.id_to_token(static_cast<int32_t>(id));
    if (text && !text->empty()) specials.push_back(std::move(*text));
  }
  return specials;
}

/// A call {name, arguments} whose arguments are an object also where the row has its JSON text.
jinja::Value with_object(const jinja::Value& call) {
  if (!call.dict()) return call;
  jinja::Dict made;
  for (const auto& [name, value] : call.dict()->entries()) {
    const bool arguments = name.is_str() && name.bytes() == "arguments" && value.is_str();
    const auto object = arguments ? jinja::value_of_json(value.bytes()) : jinja::Value();
    const bool nested = name.is_str() && name.bytes() == "function";
    if (arguments && object && object->dict())
      made.set(name, *object);
    else
      made.set(name, nested ? with_object(value) : value);
  }
  return jinja::make_dict(std::move(made));
}

jinja::Value with_objects(const jinja::Value& calls) {
  if (!calls.sequence()) return calls;
  jinja::Values made;
  for (const jinja::Value& call : calls.sequence()->items) made.push_back(with_object(call));
  return jinja::make_list(std::move(made));
}

/// Whether a template needs the arguments of calls as objects: it refuses a JSON text, or writes it
/// as JSON once more.
bool needs_objects(const ChatTemplate& form) {
  if (!form.mentions("tool_calls")) return false;
  constexpr char kText[] = R"({"dsj": 1})";
  const auto call = [](const jinja::Value& arguments) {
    using jinja::make_dict;
    return make_dict(
        {{"role", "assistant"},
         {"content", ""},
         {"tool_calls",
          jinja::make_list(
              {make_dict({{"id", "abcdefghi"},
                          {"type", "function"},
                          {"function", make_dict({{"name", "f"}, {"arguments", arguments}})}})})}});
  };
  const auto render = [&](const jinja::Value& arguments, size_t turns) {
    const jinja::Value answer = jinja::make_dict(
        {{"role", "tool"}, {"content", "1"}, {"name", "f"}, {"tool_call_id", "abcdefghi"}});
    const std::vector<Turn> all = {{.role = "user", .content = "q"},
                                   {.role = "assistant", .fields = call(arguments)},
                                   {.role = "tool", .content = "1", .fields = answer},
                                   {.role = "assistant", .content = "a"}};
    return form.render(std::span(all).first(turns), jinja::Value::none(), false);
  };
  for (const size_t turns : {2, 4}) {  // some templates want the call to be answered
    if (const auto text = render(kText, turns))
      return text->text.find(R"(\"dsj\")") != std::string::npos;
    if (render(*jinja::value_of_json(kText), turns)) return true;
  }
  return false;
}

/// A turn as transformers passes it to a template: without null fields, and with reasoning
/// under the names that other templates use. `objects`: needs_objects().
jinja::Value message_of(const Turn& turn, bool reads_parts, bool objects) {
  using jinja::Value;
  if (!turn.fields.dict())
    return jinja::make_dict({{"role", turn.role}, {"content", turn.content}});
  const auto& fields = *turn.fields.dict();
  const Value* reasoning = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* found = fields.named(name);
    if (!reasoning && found && !found->is_none()) reasoning = found;
  }
  jinja::Dict message;
  if (reasoning) message.set("thinking", *reasoning);
  for (const auto& [name, value] : fields.entries()) {
    if (value.is_none()) continue;
    const bool joins =
        name.is_str() && name.bytes() == "content" && value.sequence() && !reads_parts;
    const bool calls = objects && name.is_str() && name.bytes() == "tool_calls";
    message.set(name, joins ? Value(turn.content) : calls ? with_objects(value) : value);
  }
  if (reasoning) message.set("reasoning_content", *reasoning);
  return jinja::make_dict(std::move(message));
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(const std::string& source, std::string name,
                                         jinja::Context tokens, std::vector<std::string> specials,
                                         int64_t now) {
  DSJ_TRY(auto program, jinja::Template::parse(source, std::move(name)));
  ChatTemplate made;
  int64_t key = hash(source);
  for (const auto& [variable, value] : tokens)
    key = hash(variable + "=" + jinja::to_str(value), static_cast<uint64_t>(key));
  if (program.names("strftime_now")) key = hash(std::to_string(now), static_cast<uint64_t>(key));
  made.key_ = key == 0 ? 1 : key;
  const auto parts = std::make_shared<Parts>(
      Parts{std::move(program), source, std::move(tokens), std::move(specials), now});
  made.parts_ = parts;
  parts->needs_objects = needs_objects(made);
  return made;
}

ChatTemplate ChatTemplate::for_tools() const {
  ChatTemplate other = *this;
  if (for_tools_) other.parts_ = for_tools_;
  return other;
}

ChatTemplate ChatTemplate::with(const jinja::Value& variables) const {
  ChatTemplate other = *this;
  if (!variables.dict()) return other;
  for (const auto& [name, value] : variables.dict()->entries())
    if (name.is_str()) other.more_.emplace_back(name.bytes(), value);
  return other;
}

Result<jinja::Rendered> ChatTemplate::render(std::span<const Turn> turns, const jinja::Value& tools,
                                             bool add_generation_prompt) const {
  const bool reads_parts = mentions("'type'") || mentions("\"type\"") || mentions(".type");
  jinja::Values messages;
  for (const Turn& turn : turns)
    messages.push_back(message_of(turn, reads_parts, parts_->needs_objects));
  jinja::Context context = parts_->tokens;
  context.insert(context.end(), more_.begin(), more_.end());
  context.emplace_back("messages", jinja::make_list(std::move(messages)));
  context.emplace_back("tools", tools);
  context.emplace_back("documents", jinja::Value::none());
  context.emplace_back("add_generation_prompt", add_generation_prompt);
  return parts_->program.render(context, {.now = parts_->now});
}

Result<ChatTemplate> find_chat_template(Files& files, const std::string& model_dir,
                                        const std::string& wanted, const Tokenizer& tokenizer,
                                        const std::string& date) {
  DSJ_TRY(const int64_t now, date_of_start(date));
  DSJ_TRY(const json config, json_object_of(files, path_join(model_dir, "tokenizer_config.json")));
  const auto parsed = [&](const std::string& source, const std::string& name) {
    return ChatTemplate::parse(source, name, tokens_of(tokenizer, config), specials_of(tokenizer),
                               now);
  };
  for (const NamedTemplate& one : named_templates()) {
    if (one.name != wanted) continue;
    for (const std::string& token : one.tokens) {
      if (tokenizer.token_to_id(token)) continue;
      return bad_input("has no token " + token + ", which the chat template uses", tokenizer.file(),
                       "name another chatTemplate");
    }
    return parsed(std::string(one.source), wanted);
  }
  const TemplateWord word = template_word(wanted);
  if (word == TemplateWord::Text) return parsed(wanted, "the job's chatTemplate");
  if (word == TemplateWord::File) {
    DSJ_TRY(const std::string source, files.read_all(wanted, kTemplateBytesMax));
    return parsed(source, wanted);
  }
  DSJ_TRY(const TemplateSources sources, template_sources(files, model_dir));
  if (sources.source.empty()) {
    return bad_input("the model has no chat template", model_dir, kChatTemplateHint);
  }
  DSJ_TRY(ChatTemplate found, parsed(sources.source, sources.name));
  if (!sources.tool_source.empty()) {
    DSJ_TRY(const ChatTemplate tools, parsed(sources.tool_source, sources.name + " (tool_use)"));
    found.set_for_tools(tools);
  }
  return found;
}

}  // namespace dsj::data

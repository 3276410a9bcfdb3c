#include "engine/data/chat.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/text.h"
#include "engine/data/named_templates.h"

namespace dsj::data {
namespace {

using nlohmann::json;

constexpr char kTemplateHint[] =
    "name one: chatTemplate: chatml, qwen, qwen2.5, llama2, llama3, mistral, or a .jinja file";
constexpr size_t kTemplateBytesMax = 4 << 20;

int64_t hash(std::string_view text, uint64_t from = 0xcbf29ce484222325) {
  for (const char c : text) from = (from ^ static_cast<uint8_t>(c)) * 0x100000001b3;  // FNV-1a
  return static_cast<int64_t>(from);
}

/// What strftime_now shows: a day, so that ranks of one start agree.
int64_t date_of_start() {
  constexpr int64_t kDay = 86400;
  const char* fixed = std::getenv("SOURCE_DATE_EPOCH");
  if (const auto seconds = fixed ? text::parse_int(fixed) : std::nullopt) return *seconds;
  return static_cast<int64_t>(std::time(nullptr)) / kDay * kDay;
}

Result<json> config_of(Files& files, const std::string& path) {
  DSJ_TRY(const bool there, files.exists(path));
  if (!there) return json::object();
  DSJ_TRY(const std::string text, files.read_all(path));
  json config = json::parse(text, nullptr, false);
  if (!config.is_object()) return bad_input("is not a JSON object", path);
  return config;
}

/// The variables of a template that the tokenizer gives.
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

struct Sources {
  std::string name, source, tool_source;  ///< empty: there is none
};

Result<Sources> of_config(const json& config, const std::string& path) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return Sources{};
  if (found->is_string()) return Sources{path, found->get<std::string>(), ""};
  Sources sources{path, "", ""};
  const auto take = [&](const json& name, const json& source) {
    if (!name.is_string() || !source.is_string()) return;
    if (name == "default") sources.source = source.get<std::string>();
    if (name == "tool_use") sources.tool_source = source.get<std::string>();
  };
  if (found->is_object()) {
    for (const auto& [name, source] : found->items()) take(name, source);
  } else if (found->is_array()) {
    for (const json& one : *found) {
      if (one.is_object()) take(one.value("name", json()), one.value("template", json()));
    }
  }
  if (!sources.source.empty()) return sources;
  return bad_input("chat_template has no entry named default", path, kTemplateHint);
}

Result<Sources> of_model(Files& files, const std::string& model_dir, const json& config) {
  const std::string own = path_join(model_dir, "chat_template.jinja");
  DSJ_TRY(const bool has_own, files.exists(own));
  if (has_own) {
    DSJ_TRY(std::string source, files.read_all(own, kTemplateBytesMax));
    return Sources{own, std::move(source), ""};
  }
  const std::string legacy = path_join(model_dir, "chat_template.json");
  DSJ_TRY(const json other, config_of(files, legacy));
  if (other.contains("chat_template")) return of_config(other, legacy);
  return of_config(config, path_join(model_dir, "tokenizer_config.json"));
}

bool is_file(const std::string& wanted) {
  return wanted.find('/') != std::string::npos || wanted.ends_with(".jinja");
}

/// A turn as transformers hands it to a template: without fields that are null, and with the names
/// that reasoning has in other templates.
jinja::Value message_of(const Turn& turn, bool reads_parts) {
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
    message.set(name, joins ? Value(turn.content) : value);
  }
  if (reasoning) message.set("reasoning_content", *reasoning);
  return jinja::make_dict(std::move(message));
}

bool has_field(const Turn& turn, std::string_view name) {
  const jinja::Dict* fields = turn.fields.dict();
  const jinja::Value* found = fields ? fields->named(name) : nullptr;
  return found && jinja::truth(*found);
}

// ---- what is learned

struct Span {
  size_t begin = 0, end = 0;
};

bool is_white(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/// The special token at the end of `text`, before white space; empty: another text stands there.
std::string_view last_special(const ChatTemplate& form, std::string_view text) {
  while (!text.empty() && is_white(text.back())) text.remove_suffix(1);
  std::string_view best;
  for (const std::string& one : form.specials()) {
    if (one.size() > best.size() && text.ends_with(one)) best = one;
  }
  return best;
}

/// Finds where the answers of a conversation begin and end by rendering what leads to them.
class Answers {
 public:
  Answers(const ChatTemplate& form, std::span<const Turn> turns, const jinja::Value& tools,
          std::string_view whole)
      : form_(form), turns_(turns), tools_(tools), whole_(whole) {}

  Result<Span> span_of(size_t turn) const {
    DSJ_TRY(const size_t begin, begin_of(turn));
    DSJ_TRY(const size_t end, end_of(turn, begin));
    return Span{begin, without_space(begin, end)};
  }

  /// The answer's end before white space that follows a special token.
  size_t without_space(size_t begin, size_t end) const {
    const std::string_view answer = whole_.substr(begin, end - begin);
    if (last_special(form_, answer).empty()) return end;
    while (end > begin && is_white(whole_[end - 1])) --end;
    return end;
  }

 private:
  std::unexpected<Error> unknown(size_t turn, const std::string& why) const {
    return bad_input(
        "turn " + std::to_string(turn) + ": what is learned of it is unknown: " + why, form_.name(),
        "mark the answers in the template with {% generation %}, or learn from the last "
        "turn alone (\"weight\": 0 on the others)");
  }

  /// The generation prompt's end. Where the prompt holds more than the answer in the whole text does
  /// (an opened <think>), the answer begins at the last line or special token that both share.
  Result<size_t> begin_of(size_t turn) const {
    const auto before = form_.render(turns_.first(turn), tools_, true);
    if (!before) return unknown(turn, before.error().to_string());
    const std::string& prompt = before->text;
    if (whole_.starts_with(prompt)) return prompt.size();
    const auto plain = form_.render(turns_.first(turn), tools_, false);
    if (!plain || !whole_.starts_with(plain->text)) {
      return unknown(turn, "the turns before it are rendered otherwise without it");
    }
    size_t common = static_cast<size_t>(std::ranges::mismatch(prompt, whole_).in1 - prompt.begin());
    while (common > plain->text.size() && prompt[common - 1] != '\n' &&
           !ends_with_special(std::string_view(prompt).substr(0, common)))
      --common;
    if (common > plain->text.size()) return common;
    return unknown(turn, "the generation prompt does not lead to it");
  }

  bool ends_with_special(std::string_view text) const {
    return std::ranges::any_of(form_.specials(),
                               [text](const std::string& one) { return text.ends_with(one); });
  }

  Result<size_t> end_of(size_t turn, size_t begin) const {
    if (turn + 1 == turns_.size()) return whole_.size();
    const auto after = form_.render(turns_.first(turn + 1), tools_, false);
    if (!after) return unknown(turn, after.error().to_string());
    if (whole_.starts_with(after->text) && after->text.size() >= begin) return after->text.size();
    // As a last turn it is rendered otherwise (with its reasoning): its end token ends it here, too.
    const std::string_view token = last_special(form_, after->text);
    const size_t at = token.empty() ? std::string_view::npos : whole_.find(token, begin);
    if (at == std::string_view::npos || turns_[turn].content.find(token) != std::string::npos ||
        at >= next_begin(turn)) {
      return unknown(turn, "it is rendered otherwise when turns follow");
    }
    return at + token.size();
  }

  /// Where the turn behind the next answer's prompt begins, at most.
  size_t next_begin(size_t turn) const {
    for (size_t next = turn + 1; next < turns_.size(); ++next) {
      if (turns_[next].role != "assistant") continue;
      const auto begin = begin_of(next);
      return begin ? *begin : whole_.size();
    }
    return whole_.size();
  }

  const ChatTemplate& form_;
  const std::span<const Turn> turns_;
  const jinja::Value& tools_;
  const std::string_view whole_;
};

constexpr size_t kManyTurns = 8;

/// The answers of a long conversation whose text is its turns' texts one behind the other, as ChatML's:
/// each turn is rendered behind the first alone, so the work does not grow with the square of the
/// turns. nullopt: it is no such text, and the answers are looked for one by one.
std::optional<std::vector<Span>> spans_by_turn(const ChatTemplate& form,
                                               std::span<const Turn> turns,
                                               const jinja::Value& tools, std::string_view whole) {
  const auto first = form.render(turns.first(1), tools, false);
  const auto prompt = form.render(turns.first(1), tools, true);
  if (!first || !prompt || !whole.starts_with(first->text) ||
      !prompt->text.starts_with(first->text))
    return std::nullopt;
  const std::string lead = prompt->text.substr(first->text.size());
  if (lead.empty() || turns[0].role == "assistant") return std::nullopt;
  std::vector<Span> spans;
  size_t at = first->text.size();
  for (const Turn& turn : turns.subspan(1)) {
    const std::array<Turn, 2> pair = {turns[0], turn};
    const auto both = form.render(pair, tools, false);
    if (!both || !both->text.starts_with(first->text)) return std::nullopt;
    const auto piece = std::string_view(both->text).substr(first->text.size());
    const bool is_answer = turn.role == "assistant";
    if (whole.substr(at, piece.size()) != piece || (is_answer && !piece.starts_with(lead)))
      return std::nullopt;
    if (turn.learned) spans.push_back({at + lead.size(), at + piece.size()});
    at += piece.size();
  }
  if (at != whole.size()) return std::nullopt;
  return spans;
}

Result<std::vector<Span>> marked_spans(const ChatTemplate& form, std::span<const Turn> turns,
                                       const jinja::Rendered& whole) {
  std::vector<Span> spans;
  for (const auto& [begin, end] : whole.generated) spans.push_back({begin, end});
  const auto is_answer = [](const Turn& turn) { return turn.role == "assistant"; };
  if (std::ranges::all_of(turns, [&](const Turn& turn) { return turn.learned == is_answer(turn); }))
    return spans;
  if (std::ssize(spans) != std::ranges::count_if(turns, is_answer)) {
    return bad_input("has " + std::to_string(spans.size()) +
                         " {% generation %} blocks in a conversation of " +
                         std::to_string(std::ranges::count_if(turns, is_answer)) +
                         " answers, and the row leaves some of those out",
                     form.name());
  }
  std::vector<Span> kept;
  size_t answer = 0;
  for (const Turn& turn : turns) {
    if (!is_answer(turn)) continue;
    if (turn.learned) kept.push_back(spans[answer]);
    ++answer;
  }
  return kept;
}

Status check_forms(const ChatTemplate& form, std::span<const Turn> turns,
                   const jinja::Value& tools) {
  const auto refuse = [&](const std::string& what) {
    return bad_input(what + ": the chat template has no form for them", form.name(), kTemplateHint);
  };
  if (turns.empty()) return bad_input("has no turns");
  if (jinja::truth(tools) && !form.mentions("tools")) return refuse("tools");
  for (const Turn& turn : turns) {
    if (has_field(turn, "tool_calls") && !form.mentions("tool_calls")) return refuse("tool_calls");
  }
  return {};
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
  made.parts_ = std::make_shared<const Parts>(
      Parts{std::move(program), source, std::move(tokens), std::move(specials), now});
  return made;
}

ChatTemplate ChatTemplate::for_tools() const {
  ChatTemplate other = *this;
  if (for_tools_) other.parts_ = for_tools_;
  return other;
}

Result<jinja::Rendered> ChatTemplate::render(std::span<const Turn> turns, const jinja::Value& tools,
                                             bool add_generation_prompt) const {
  const bool reads_parts = mentions("'type'") || mentions("\"type\"") || mentions(".type");
  jinja::Values messages;
  for (const Turn& turn : turns) messages.push_back(message_of(turn, reads_parts));
  jinja::Context context = parts_->tokens;
  context.emplace_back("messages", jinja::make_list(std::move(messages)));
  context.emplace_back("tools", tools);
  context.emplace_back("documents", jinja::Value::none());
  context.emplace_back("add_generation_prompt", add_generation_prompt);
  return parts_->program.render(context, {.now = parts_->now});
}

Result<ChatTemplate> find_chat_template(Files& files, const std::string& model_dir,
                                        const std::string& wanted, const Tokenizer& tokenizer) {
  DSJ_TRY(const json config, config_of(files, path_join(model_dir, "tokenizer_config.json")));
  const auto parsed = [&](const std::string& source, const std::string& name) {
    return ChatTemplate::parse(source, name, tokens_of(tokenizer, config), specials_of(tokenizer),
                               date_of_start());
  };
  for (const NamedTemplate& one : named_templates()) {
    if (one.name != wanted) continue;
    for (const std::string& token : one.tokens) {
      if (tokenizer.token_to_id(token)) continue;
      return bad_input("has no token " + token + ", which the chat template is made of",
                       tokenizer.file(), "name another chatTemplate");
    }
    return parsed(std::string(one.source), wanted);
  }
  if (is_file(wanted)) {
    DSJ_TRY(const std::string source, files.read_all(wanted, kTemplateBytesMax));
    return parsed(source, wanted);
  }
  DSJ_TRY(const Sources sources, of_model(files, model_dir, config));
  if (sources.source.empty()) {
    return bad_input("the model has no chat template", model_dir, kTemplateHint);
  }
  DSJ_TRY(ChatTemplate found, parsed(sources.source, sources.name));
  if (!sources.tool_source.empty()) {
    DSJ_TRY(const ChatTemplate tools, parsed(sources.tool_source, sources.name + " (tool_use)"));
    found.set_for_tools(tools);
  }
  return found;
}

Result<std::vector<ChatPiece>> render_chat(const ChatTemplate& chat_template,
                                           std::span<const Turn> turns, const jinja::Value& tools) {
  if (chat_template == ChatTemplate()) return bad_input("there is no chat template");
  const ChatTemplate form = jinja::truth(tools) ? chat_template.for_tools() : chat_template;
  DSJ_TRY_STATUS(check_forms(form, turns, tools));
  DSJ_TRY(const jinja::Rendered whole, form.render(turns, tools, false));
  std::vector<Span> spans;
  if (form.has_generation()) {
    DSJ_TRY(spans, marked_spans(form, turns, whole));
  } else {
    const Answers answers(form, turns, tools, whole.text);
    const auto found =
        turns.size() > kManyTurns ? spans_by_turn(form, turns, tools, whole.text) : std::nullopt;
    for (const Span& span : found.value_or(std::vector<Span>{}))
      spans.push_back({span.begin, answers.without_space(span.begin, span.end)});
    for (size_t i = 0; !found && i < turns.size(); ++i) {
      if (!turns[i].learned) continue;
      DSJ_TRY(const Span span, answers.span_of(i));
      spans.push_back(span);
    }
  }
  std::vector<ChatPiece> pieces;
  size_t at = 0;
  for (const Span& span : spans) {
    if (span.begin < at || span.end < span.begin) {
      return bad_input("the answers overlap in the text", form.name());
    }
    pieces.push_back({whole.text.substr(at, span.begin - at)});
    pieces.push_back({whole.text.substr(span.begin, span.end - span.begin), true});
    at = span.end;
  }
  pieces.push_back({whole.text.substr(at)});
  return pieces;
}

Result<std::string> render_question(const ChatTemplate& chat_template, std::span<const Turn> turns,
                                    const jinja::Value& tools) {
  if (chat_template == ChatTemplate()) return bad_input("there is no chat template");
  const ChatTemplate form = jinja::truth(tools) ? chat_template.for_tools() : chat_template;
  DSJ_TRY_STATUS(check_forms(form, turns, tools));
  DSJ_TRY(jinja::Rendered text, form.render(turns, tools, true));
  return std::move(text.text);
}

}  // namespace dsj::data

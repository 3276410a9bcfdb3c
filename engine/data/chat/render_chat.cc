// Renders conversations with a chat template: the three functions of chat.h.
#include <string>
#include <utility>

#include "engine/data/chat/answers.h"
#include "engine/data/chat/chat.h"
#include "engine/data/chat/named_templates.h"

namespace dsj::data {
namespace {

bool has_field(const Turn& turn, std::string_view name) {
  const jinja::Dict* fields = turn.fields.dict();
  const jinja::Value* found = fields ? fields->named(name) : nullptr;
  return found && jinja::truth(*found);
}

Status check_forms(const ChatTemplate& form, std::span<const Turn> turns,
                   const jinja::Value& tools) {
  const auto refuse = [&](const std::string& what) {
    return bad_input(what + ": the chat template does not support them", form.name(),
                     kChatTemplateHint);
  };
  if (turns.empty()) return bad_input("has no turns");
  if (jinja::truth(tools) && !form.mentions("tools")) return refuse("tools");
  for (const Turn& turn : turns) {
    if (has_field(turn, "tool_calls") && !form.mentions("tool_calls")) return refuse("tool_calls");
  }
  return {};
}

}  // namespace

Result<std::vector<ChatPiece>> render_chat(const ChatTemplate& chat_template,
                                           std::span<const Turn> turns, const jinja::Value& tools) {
  if (chat_template == ChatTemplate()) return bad_input("there is no chat template");
  const ChatTemplate form = jinja::truth(tools) ? chat_template.for_tools() : chat_template;
  DSJ_TRY_STATUS(check_forms(form, turns, tools));
  DSJ_TRY(const jinja::Rendered whole, form.render(turns, tools, false));
  DSJ_TRY(const std::vector<TextSpan> spans, learned_spans(form, turns, tools, whole));
  std::vector<ChatPiece> pieces;
  size_t at = 0;
  for (const TextSpan& span : spans) {
    if (span.begin < at || span.end < span.begin) {
      return bad_input("the answers overlap in the text", form.name());
    }
    pieces.push_back({whole.text.substr(at, span.begin - at)});
    pieces.push_back(
        {whole.text.substr(span.begin, span.end - span.begin), true, form.has_generation()});
    at = span.end;
  }
  pieces.push_back({whole.text.substr(at)});
  return pieces;
}

namespace {

Result<std::string> rendered(const ChatTemplate& chat_template, std::span<const Turn> turns,
                             const jinja::Value& tools, bool add_generation_prompt) {
  if (chat_template == ChatTemplate()) return bad_input("there is no chat template");
  const ChatTemplate form = jinja::truth(tools) ? chat_template.for_tools() : chat_template;
  DSJ_TRY_STATUS(check_forms(form, turns, tools));
  DSJ_TRY(jinja::Rendered text, form.render(turns, tools, add_generation_prompt));
  return std::move(text.text);
}

}  // namespace

Result<std::string> render_text(const ChatTemplate& chat_template, std::span<const Turn> turns,
                                const jinja::Value& tools) {
  return rendered(chat_template, turns, tools, false);
}

Result<std::string> render_question(const ChatTemplate& chat_template, std::span<const Turn> turns,
                                    const jinja::Value& tools) {
  return rendered(chat_template, turns, tools, true);
}

}  // namespace dsj::data

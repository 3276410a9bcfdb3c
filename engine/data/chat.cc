#include "engine/data/chat.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace dsj::data {
namespace {

using nlohmann::json;

constexpr char kTemplateHint[] =
    "name one: chatTemplate: chatml, qwen, qwen2.5, llama2, llama3 or mistral";

/// Fingerprints of published templates.
constexpr std::array<std::pair<uint64_t, ChatTemplate>, 5> kKnown = {{
    {0xabcc246a94341a38, ChatTemplate::ChatMl},
    {0xe95a0b7a38abe23f, ChatTemplate::Qwen},
    {0xcbaa4eab11a731c3, ChatTemplate::Qwen25},
    {0xae8ac1f53b8942b4, ChatTemplate::Llama3},
    {0x1adceccc7328b21c, ChatTemplate::Llama3},
}};

constexpr std::array<std::pair<std::string_view, ChatTemplate>, 6> kNames = {{
    {"chatml", ChatTemplate::ChatMl},
    {"qwen", ChatTemplate::Qwen},
    {"qwen2.5", ChatTemplate::Qwen25},
    {"llama2", ChatTemplate::Llama2},
    {"llama3", ChatTemplate::Llama3},
    {"mistral", ChatTemplate::Mistral},
}};

/// Empty: the directory has no template.
Result<std::string> template_text(Files& files, const std::string& model_dir) {
  const std::string own = path_join(model_dir, "chat_template.jinja");
  DSJ_TRY(const bool has_own, files.exists(own));
  if (has_own) return files.read_all(own, 1 << 20);
  const std::string path = path_join(model_dir, "tokenizer_config.json");
  DSJ_TRY(const bool there, files.exists(path));
  if (!there) return std::string();
  DSJ_TRY(const std::string text, files.read_all(path));
  const json config = json::parse(text, nullptr, false);
  if (config.is_discarded()) return bad_input("is not JSON", path);
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::string();
  if (found->is_string()) return found->get<std::string>();
  for (const json& one : *found) {  // several templates by name
    if (one.is_object() && one.value("name", "") == "default") return one.value("template", "");
  }
  return bad_input("chat_template has no entry named default", path, kTemplateHint);
}

/// Tokens that the tokenizer must have; else the template's text would be read as plain letters.
std::vector<std::string> tokens_of(ChatTemplate chat_template) {
  switch (chat_template) {
    case ChatTemplate::ChatMl:
    case ChatTemplate::Qwen:
    case ChatTemplate::Qwen25:
      return {"<|im_start|>", "<|im_end|>"};
    case ChatTemplate::Llama3:
      return {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
    case ChatTemplate::None:
    case ChatTemplate::Llama2:
    case ChatTemplate::Mistral:
      break;
  }
  return {};
}

/// As Jinja's trim and Python's strip, for ASCII.
std::string trimmed(const std::string& text) {
  constexpr char kSpace[] = " \t\r\n\f\v";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

std::vector<ChatPiece> chatml(std::span<const Turn> turns, const std::string& system) {
  std::vector<ChatPiece> pieces;
  if (!system.empty() && turns.front().role != "system") {
    pieces.push_back({"<|im_start|>system\n" + system + "<|im_end|>\n"});
  }
  for (const Turn& turn : turns) {
    pieces.push_back({"<|im_start|>" + turn.role + "\n"});
    pieces.push_back({turn.content + "<|im_end|>", turn.learned});
    pieces.push_back({"\n"});
  }
  return pieces;
}

std::vector<ChatPiece> llama3(std::span<const Turn> turns, const std::string& bos) {
  std::vector<ChatPiece> pieces = {{bos}};
  for (const Turn& turn : turns) {
    pieces.push_back({"<|start_header_id|>" + turn.role + "<|end_header_id|>\n\n"});
    pieces.push_back({trimmed(turn.content) + "<|eot_id|>", turn.learned});
  }
  return pieces;
}

/// llama2 and mistral: user and assistant take turns between [INST] and [/INST].
Result<std::vector<ChatPiece>> instructions(bool is_llama2, std::span<const Turn> turns,
                                            const std::string& bos, const std::string& eos) {
  std::string system;
  if (turns.front().role == "system") {
    if (!is_llama2) return bad_input("mistral's template has no form for a system message");
    system = "<<SYS>>\n" + turns.front().content + "\n<</SYS>>\n\n";
    turns = turns.subspan(1);
  }
  std::vector<ChatPiece> pieces;
  for (size_t i = 0; i < turns.size(); ++i) {
    const bool user = i % 2 == 0;
    if (turns[i].role != (user ? "user" : "assistant")) {
      return bad_input("turn " + std::to_string(i) + " is " + turns[i].role + "'s, expected " +
                       (user ? "user" : "assistant") + "'s: they take turns in this template");
    }
    const std::string& content = turns[i].content;
    if (user) {
      const std::string begin = is_llama2 || i == 0 ? bos : "";
      const std::string text = is_llama2 ? trimmed(system + content) : content;
      pieces.push_back({begin + "[INST] " + text + " [/INST]"});
      system.clear();
    } else {
      pieces.push_back(
          {(is_llama2 ? " " + trimmed(content) + " " : content) + eos, turns[i].learned});
    }
  }
  return pieces;
}

}  // namespace

namespace {

/// The text without white space and with one kind of quotes. A line end within a string of a tag is
/// the string's, and the same as its escape: JSON files hold the one, .jinja files the other.
std::string plain_template(std::string_view text) {
  std::string plain;
  bool in_tag = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const std::string_view pair = text.substr(i, 2);
    if (!in_tag) {
      in_tag = pair == "{{" || pair == "{%";
    } else if (quote == 0 && (pair == "}}" || pair == "%}")) {
      in_tag = false;
    } else if (quote != 0 && c == '\\' && pair.size() == 2) {
      plain += pair;
      ++i;
      continue;
    } else if (c == '\'' || c == '"') {
      if (quote == 0) {
        quote = c;
      } else if (quote == c) {
        quote = 0;
      }
    }
    if (c == '\n' && quote != 0) plain += "\\n";
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') continue;
    plain += c == '"' ? '\'' : c;
  }
  return plain;
}

}  // namespace

uint64_t template_fingerprint(std::string_view text) {
  const std::string plain = plain_template(text);
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (size_t i = 0; i < plain.size(); ++i) {
    const bool opens = plain[i] == '-' && i >= 2 && plain[i - 2] == '{' &&
                       (plain[i - 1] == '%' || plain[i - 1] == '{');
    const bool closes = plain[i] == '-' && i + 2 < plain.size() && plain[i + 2] == '}' &&
                        (plain[i + 1] == '%' || plain[i + 1] == '}');
    if (opens || closes) continue;
    hash = (hash ^ static_cast<uint8_t>(plain[i])) * 0x100000001b3;
  }
  return hash;
}

Result<ChatTemplate> find_chat_template(Files& files, const std::string& model_dir,
                                        const std::string& wanted, const Tokenizer& tokenizer) {
  std::optional<ChatTemplate> found;
  for (const auto& [name, chat_template] : kNames) {
    if (name == wanted) found = chat_template;
  }
  if (!found) {
    DSJ_TRY(const std::string text, template_text(files, model_dir));
    if (text.empty()) return bad_input("the model has no chat template", model_dir, kTemplateHint);
    const uint64_t fingerprint = template_fingerprint(text);
    for (const auto& [known, chat_template] : kKnown) {
      if (known == fingerprint) found = chat_template;
    }
    if (!found) {
      return bad_input("the model's chat template is not one of those known here", model_dir,
                       kTemplateHint);
    }
  }
  for (const std::string& token : tokens_of(*found)) {
    if (tokenizer.token_to_id(token)) continue;
    return bad_input("has no token " + token + ", which the chat template is made of",
                     tokenizer.file(), "name another chatTemplate");
  }
  return *found;
}

Result<std::vector<ChatPiece>> render_chat(ChatTemplate chat_template, std::span<const Turn> turns,
                                           const std::string& bos, const std::string& eos) {
  if (turns.empty()) return bad_input("has no turns");
  switch (chat_template) {
    case ChatTemplate::ChatMl:
      return chatml(turns, "");
    case ChatTemplate::Qwen:
      return chatml(turns, "You are a helpful assistant.");
    case ChatTemplate::Qwen25:
      return chatml(turns, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
    case ChatTemplate::Llama3:
      return llama3(turns, bos);
    case ChatTemplate::Llama2:
      return instructions(true, turns, bos, eos);
    case ChatTemplate::Mistral:
      return instructions(false, turns, bos, eos);
    case ChatTemplate::None:
      break;
  }
  return bad_input("there is no chat template");
}

}  // namespace dsj::data

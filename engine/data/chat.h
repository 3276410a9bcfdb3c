// Conversations as the model sees them: {"messages": [{"role", "content"}...]}, or ShareGPT's
// {"conversations": [{"from", "value"}...]}, rendered by a chat template; and which parts are
// learned from: the assistant's turns with the token that ends each, but for those that their row
// leaves out (Turn::learned).
//
// Templates are Jinja programs in the model directory. None is run here. A template is known by a
// fingerprint of its text, or training.chatTemplate names it; any other is refused.
//
//   name       form                                     a row without a system message gets
//   chatml     <|im_start|>role\ncontent<|im_end|>\n    none
//   qwen       the same (Qwen1.5, Qwen2)                "You are a helpful assistant."
//   qwen2.5    the same                                 Qwen2.5's own system message
//   llama2     <s>[INST] user [/INST] answer </s>       none
//   llama3     <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>    none
//   mistral    <s>[INST] user [/INST]answer</s>         none
//
// llama2 puts a system message into the first user turn; mistral refuses one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/data/tokenizer.h"

namespace dsj::data {

enum class ChatTemplate { None, ChatMl, Qwen, Qwen25, Llama2, Llama3, Mistral };

struct Turn {
  std::string role, content;
  bool learned = false;  ///< the assistant's, unless its row says no
};

struct ChatPiece {
  std::string text;
  bool learned = false;
};

/// The template that `wanted` names; for "auto" the directory's chat_template.jinja, else the
/// chat_template in its tokenizer_config.json. BadInput: there is none, it is not known, or the
/// tokenizer lacks a token that the template is made of.
Result<ChatTemplate> find_chat_template(Files& files, const std::string& model_dir,
                                        const std::string& wanted, const Tokenizer& tokenizer);

/// The pieces, in order, are the whole text. `bos`, `eos`: the tokens' texts, for templates that
/// write them. BadInput: the template has no form for these turns (a system message in mistral, two
/// user turns in a row in llama2).
Result<std::vector<ChatPiece>> render_chat(ChatTemplate chat_template, std::span<const Turn> turns,
                                           const std::string& bos, const std::string& eos);

/// The fingerprint. White space, trim marks and the kind of quotes do not count. A line end within a
/// string of a tag counts as its escape.
uint64_t template_fingerprint(std::string_view text);

}  // namespace dsj::data

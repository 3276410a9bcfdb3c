// Conversations as the model sees them: {"messages": [{"role", "content"}...]} and ShareGPT's
// {"conversations": [{"from", "value"}...]} rendered by a chat template, and which parts are
// learned from: the assistant's turns with the token that ends them.
//
// Templates are Jinja programs in the model directory. None is run here: a template is either known
// by a fingerprint of its text, or named by training.chatTemplate; another one is refused.
//
//   name     as                                  a row without a system message gets
//   chatml   <|im_start|>role\ncontent<|im_end|>\n   none
//   qwen     the same (Qwen1.5, Qwen2)            "You are a helpful assistant."
//   qwen2.5  the same                            Qwen2.5's own system message
//   llama2   <s>[INST] user [/INST] answer </s>  none; one is put into the first user turn
//   llama3   <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>   none
//   mistral  <s>[INST] user [/INST]answer</s>    none; one is refused
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
};

struct ChatPiece {
  std::string text;
  bool learned = false;
};

/// The template `wanted` names; "auto": that of the directory's chat_template.jinja, else of the
/// chat_template in its tokenizer_config.json. BadInput: there is none, or it is not known. Also
/// when the tokenizer lacks a token that the template is made of.
Result<ChatTemplate> find_chat_template(Files& files, const std::string& model_dir,
                                        const std::string& wanted, const Tokenizer& tokenizer);

/// The whole text is the pieces in order. `bos`, `eos`: texts of the tokens, for the templates that
/// write them. BadInput: turns the template has no form for (a system message in mistral, two user
/// turns in a row in llama2).
Result<std::vector<ChatPiece>> render_chat(ChatTemplate chat_template, std::span<const Turn> turns,
                                           const std::string& bos, const std::string& eos);

/// What fingerprints are made of: whitespace, trim marks and the kind of quotes do not count.
uint64_t template_fingerprint(std::string_view text);

}  // namespace dsj::data

// The chat templates that training.chatTemplate names (chat.h lists them): Jinja programs of our own.
// Internal to engine/data.
// Tested by: tests/engine/data/chat/chat_test.cc
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace dsj::data {

inline constexpr char kChatTemplateHint[] =
    "name one: chatTemplate: chatml, qwen, qwen2.5, llama2, llama3, mistral, or a .jinja file";

struct NamedTemplate {
  std::string_view name, source;
  std::vector<std::string> tokens;  ///< the tokenizer must have these
};

// {% generation %} marks the learned parts, as in TRL's training templates.
#define DSJ_CHATML_TURNS                                                                      \
  "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}" \
  "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{% else %}"               \
  "{{ m.content + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"                           \
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
#define DSJ_CHATML_SYSTEM(text)                        \
  "{% if messages and messages[0].role != 'system' %}" \
  "{{ '<|im_start|>system\n" text "<|im_end|>\n' }}{% endif %}" DSJ_CHATML_TURNS
#define DSJ_TAKE_TURNS(name, users)                                                            \
  "{% set turns = messages[1:] if messages[0].role == 'system' else messages %}"               \
  "{% for m in turns %}{% set expected = 'user' if loop.index0 % 2 == 0 else 'assistant' %}"   \
  "{% if m.role != expected %}{{ raise_exception('turn ' ~ loop.index0 ~ ' is ' ~ m.role ~ \"" \
  "'s, expected \" ~ expected ~ \"'s: they take turns in this template\") }}{% endif %}"       \
  "{% if m.role == 'user' %}" users

inline const std::array<NamedTemplate, 6>& named_templates() {
  static const std::vector<std::string> chatml = {"<|im_start|>", "<|im_end|>"};
  static const std::array<NamedTemplate, 6> all = {{
      {"chatml", DSJ_CHATML_TURNS, chatml},
      {"qwen", DSJ_CHATML_SYSTEM("You are a helpful assistant."), chatml},
      {"qwen2.5",
       DSJ_CHATML_SYSTEM("You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
       chatml},
      {"llama2",
       DSJ_TAKE_TURNS("llama2",
                      "{% set system = '<<SYS>>\n' + messages[0].content + "
                      "'\n<</SYS>>\n\n' if "
                      "loop.first and messages[0].role == 'system' else '' %}"
                      "{{ bos_token ~ '[INST] ' + (system + m.content).strip() + ' "
                      "[/INST]' }}") "{% else %}{% generation %}{{ ' ' + "
                                     "m.content.strip() + ' ' ~ eos_token }}"
                                     "{% endgeneration %}{% endif %}{% endfor %}",
       {}},
      {"llama3",
       "{{ bos_token }}{% for m in messages %}"
       "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}"
       "{% if m.role == 'assistant' %}{% generation %}{{ m.content | trim + "
       "'<|eot_id|>' }}"
       "{% endgeneration %}{% else %}{{ m.content | trim + '<|eot_id|>' }}{% endif "
       "%}{% endfor %}"
       "{% if add_generation_prompt %}"
       "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
       {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
      {"mistral",
       "{% if messages[0].role == 'system' %}"
       "{{ raise_exception(\"mistral's template does not support a system message\") "
       "}}{% endif %}" DSJ_TAKE_TURNS(
           "mistral",
           "{{ (bos_token if loop.first else '') ~ '[INST] ' + m.content + ' [/INST]' "
           "}}") "{% else %}{% generation %}{{ m.content ~ eos_token }}{% "
                 "endgeneration %}{% endif %}"
                 "{% endfor %}",
       {}},
  }};
  return all;
}

#undef DSJ_CHATML_TURNS
#undef DSJ_CHATML_SYSTEM
#undef DSJ_TAKE_TURNS

}  // namespace dsj::data

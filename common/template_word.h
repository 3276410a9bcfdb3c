// What a user writes where a chat template is asked for: a name that is known (engine/data/chat/chat.h), a file,
// or the text of a template, as TRL's recipes and tokenizer_config.json have it. Pure.
// Tested by: tests/common/template_word_test.cc
#pragma once

#include <string_view>

namespace dsj {

enum class TemplateWord { Name, File, Text };

/// A text has {% or {{; it may have slashes, as in </s>. A file has a slash, or ends in .jinja.
inline TemplateWord template_word(std::string_view word) {
  if (word.contains("{%") || word.contains("{{")) return TemplateWord::Text;
  if (word.contains('/') || word.ends_with(".jinja")) return TemplateWord::File;
  return TemplateWord::Name;
}

}  // namespace dsj

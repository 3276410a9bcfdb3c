// Classifies a user's choice of a chat template: a known name (engine/data/chat/chat.h), a file, or
// the text of a template, as in TRL's recipes and tokenizer_config.json. Pure.
// Tested by: tests/common/template_word_test.cc
#pragma once

#include <string_view>

namespace dsj {

enum class TemplateWord { Name, File, Text };

/// A text contains {% or {{, and perhaps slashes (</s>). A file contains a slash or ends in .jinja.
inline TemplateWord template_word(std::string_view word) {
  if (word.contains("{%") || word.contains("{{")) return TemplateWord::Text;
  if (word.contains('/') || word.ends_with(".jinja")) return TemplateWord::File;
  return TemplateWord::Name;
}

}  // namespace dsj

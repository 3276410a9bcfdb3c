// Finds the answers in a rendered conversation: by the template's {% generation %} blocks, else
// by rendering the turns that lead to an answer. Internal to engine/data; callers use
// render_chat (chat.h). Tested by: tests/engine/data/chat/answers_test.cc
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/jinja/template.h"
#include "common/result.h"
#include "engine/data/chat/chat.h"

namespace dsj::data {

/// A part of a text, in bytes.
struct TextSpan {
  std::size_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

/// The special token that ends `text`, apart from white space; empty if other text ends it.
std::string_view end_token(std::string_view text, const std::vector<std::string>& specials);

/// The learned answers of `turns` in `whole`, which is their text under `form`, in order.
/// Errors: BadInput if the learned part of an answer cannot be determined.
///
/// For a template without {% generation %}, two quick ways find the answers of a long
/// conversation if its text has the right form: the number of renderings (each of at most all
/// turns) does not grow with the turns. Otherwise spans_one_by_one is used.
Result<std::vector<TextSpan>> learned_spans(const ChatTemplate& form, std::span<const Turn> turns,
                                            const jinja::Value& tools,
                                            const jinja::Rendered& whole);

/// The same by rendering the turns before each answer, and up to its end: both must be prefixes
/// of `whole`. The work grows with the square of the turns.
Result<std::vector<TextSpan>> spans_one_by_one(const ChatTemplate& form,
                                               std::span<const Turn> turns,
                                               const jinja::Value& tools, std::string_view whole);

}  // namespace dsj::data

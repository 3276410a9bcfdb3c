// Which parts of a rendered conversation are its answers: the template's {% generation %} blocks,
// else what is found by rendering the turns that lead to an answer. Internal to engine/data;
// callers use render_chat (chat.h). Tested by: tests/engine/data/chat/answers_test.cc
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

/// The special token at the end of `text`, before white space; empty: there is another text.
std::string_view end_token(std::string_view text, const std::vector<std::string>& specials);

/// The learned answers of `turns` in `whole`, their text under `form`, in order. BadInput: what is
/// learned of an answer cannot be known.
///
/// Without {% generation %} a long conversation's answers are found in one of two quick ways, if its
/// text is of that form, in a number of renderings that does not grow with the turns (each renders
/// at most all of them); else as spans_one_by_one.
Result<std::vector<TextSpan>> learned_spans(const ChatTemplate& form, std::span<const Turn> turns,
                                            const jinja::Value& tools,
                                            const jinja::Rendered& whole);

/// The same by rendering the turns before each answer, and those up to its end: both must begin
/// `whole`. Its work grows with the square of the turns.
Result<std::vector<TextSpan>> spans_one_by_one(const ChatTemplate& form,
                                               std::span<const Turn> turns,
                                               const jinja::Value& tools, std::string_view whole);

}  // namespace dsj::data

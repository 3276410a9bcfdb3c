// Stanford Alpaca's prompt. The data set and generate share it, so that a model is asked in the
// form in which it was trained.
#pragma once

#include <string>
#include <string_view>

namespace dsj::data {

/// The beginning of a row's text: `system`, or Stanford's sentence, which mentions an input if
/// there is one; then an empty line.
std::string alpaca_lead(std::string_view system, std::string_view input);
/// From "### Instruction:" to "### Response:", inclusive; the answer follows directly. Without
/// `input` the text has no input section.
std::string alpaca_question(std::string_view instruction, std::string_view input = {});
/// alpaca_lead and alpaca_question, without a system text.
std::string alpaca_prompt(std::string_view instruction, std::string_view input = {});

}  // namespace dsj::data

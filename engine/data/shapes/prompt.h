// Stanford Alpaca's prompt: how the model sees a row's fields. The data set and generate share it,
// so that a model is asked in the form it was trained on.
#pragma once

#include <string>
#include <string_view>

namespace dsj::data {

/// What a row's text begins with: `system`, or Stanford's sentence, which names an input if there is
/// one; and an empty line.
std::string alpaca_lead(std::string_view system, std::string_view input);
/// From "### Instruction:" up to and including "### Response:"; the answer follows directly. If
/// `input` is empty the text has no input section.
std::string alpaca_question(std::string_view instruction, std::string_view input = {});
/// Both, without a system text.
std::string alpaca_prompt(std::string_view instruction, std::string_view input = {});

}  // namespace dsj::data

// Stanford Alpaca's prompt: how the model sees a row's fields. The data set and generate share it,
// so that a model is asked in the form it was trained on.
#pragma once

#include <string>
#include <string_view>

namespace dsj::data {

/// The text up to and including "### Response:"; the answer follows directly. If `input` is empty
/// the text has no input section.
std::string alpaca_prompt(std::string_view instruction, std::string_view input = {});

}  // namespace dsj::data

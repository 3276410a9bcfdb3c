// Stanford Alpaca's prompt: what a row's fields look like to the model. Used by the data set and by
// generate, so that a model is asked in the form it was trained on.
#pragma once

#include <string>
#include <string_view>

namespace dsj::data {

/// The text up to and with "### Response:"; the answer follows it directly. Without input (empty)
/// the template has no input section.
std::string alpaca_prompt(std::string_view instruction, std::string_view input = {});

}  // namespace dsj::data

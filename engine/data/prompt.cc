#include "engine/data/prompt.h"

namespace dsj::data {

std::string alpaca_prompt(std::string_view instruction, std::string_view input) {
  std::string text = "Below is an instruction that describes a task";
  if (!input.empty()) text += ", paired with an input that provides further context";
  text += ". Write a response that appropriately completes the request.\n\n### Instruction:\n";
  text += instruction;
  if (!input.empty()) {
    text += "\n\n### Input:\n";
    text += input;
  }
  text += "\n\n### Response:";
  return text;
}

}  // namespace dsj::data

#include "engine/data/shapes/prompt.h"

namespace dsj::data {

std::string alpaca_lead(std::string_view system, std::string_view input) {
  if (!system.empty()) return std::string(system) + "\n\n";
  std::string text = "Below is an instruction that describes a task";
  if (!input.empty()) text += ", paired with an input that provides further context";
  return text + ". Write a response that appropriately completes the request.\n\n";
}

std::string alpaca_question(std::string_view instruction, std::string_view input) {
  std::string text = "### Instruction:\n";
  text += instruction;
  if (!input.empty()) {
    text += "\n\n### Input:\n";
    text += input;
  }
  return text + "\n\n### Response:";
}

std::string alpaca_prompt(std::string_view instruction, std::string_view input) {
  return alpaca_lead({}, input) + alpaca_question(instruction, input);
}

}  // namespace dsj::data

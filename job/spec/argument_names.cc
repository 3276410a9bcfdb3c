#include "job/spec/argument_names.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "job/argument_table.h"
#include "job/spec/lora_arguments.h"
#include "job/training_schema.h"

namespace dsj::jobspec {

const std::map<std::string, std::string>& training_names() {
  static const std::map<std::string, std::string> names = [] {
    std::map<std::string, std::string> table = {{"eval_strategy", "evaluationStrategy"},
                                                {"model_max_length", "maxSeqLength"}};
    for (const std::string& camel : training_arg_names())
      if (camel != "lora") table[snake_case(camel)] = camel;
    return table;
  }();
  return names;
}

std::string argument_of(const std::string& path) {
  static const std::map<std::string, std::string> others = {
      {"spec.workers.slotsPerWorker", "--nproc_per_node"},
      {"spec.workers.replicas", "--nnodes"},
      {"spec.backoffLimit", "--max_restarts"},
      {"spec.deepspeed", "--deepspeed"},
      {"spec.deepspeed.configFrom", "--deepspeed"},
      {"spec.deepspeed.configFrom.file", "--deepspeed"}};
  if (const auto other = others.find(path); other != others.end()) return other->second;
  constexpr std::string_view kTraining = "spec.training.", kLora = "spec.training.lora.";
  if (path.starts_with(kLora))
    for (const LoraArgument& lora : kLoraArguments)
      if (path.substr(kLora.size()) == lora.field) return std::string("--") + lora.name;
  if (path.starts_with(kLora))
    for (const BaseArgument& base : kBaseArguments)
      if (path.substr(kLora.size()) == base.field) return std::string("--") + base.name;
  if (path == "spec.training.lora") return "--use_lora";
  if (path.starts_with(kTraining))
    for (const auto& [name, field] : training_names())
      if (path.substr(kTraining.size()) == field && name == snake_case(field)) return "--" + name;
  return {};
}

std::string in_arguments(const std::string& text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    const auto in_word = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
    };
    while (end < text.size() && in_word(text[end])) ++end;
    if (end == at) {
      result += text[at++];
      continue;
    }
    std::string word = text.substr(at, end - at);
    at = end;
    const size_t tail = word.find_last_not_of('.') + 1;  // the end of a sentence
    std::string name = word.substr(0, tail);
    if (name.starts_with("spec.")) name.erase(0, 5);
    const bool field = name.starts_with("training.");
    if (field) name.erase(0, 9);
    const bool camel = std::ranges::any_of(name, [](unsigned char c) { return std::isupper(c); });
    const std::string argument = field || camel ? argument_of("spec.training." + name) : "";
    result += argument.empty() ? word : argument + word.substr(tail);
  }
  return result;
}

}  // namespace dsj::jobspec

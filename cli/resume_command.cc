#include "cli/resume_command.h"

#include <string_view>
#include <vector>

namespace dsj::cli {
namespace {

constexpr std::string_view kOption = "--resume_from_checkpoint";

std::string shell_word(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyz"
                                          "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789-_=./,:@+") == std::string::npos;
  if (plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string resume_command(Arguments args, const std::optional<std::string>& from) {
  const bool begins_elsewhere = from && *from != "true";
  std::string text = "dsj run";
  bool replaced = false;
  for (size_t i = 0; i < args.size(); ++i) {
    std::string word = args[i];
    if (begins_elsewhere && word == kOption && i + 1 < args.size()) {
      ++i;
      word = std::string(kOption) + "=true";
      replaced = true;
    } else if (begins_elsewhere && word.starts_with(std::string(kOption) + "=")) {
      word = std::string(kOption) + "=true";
      replaced = true;
    }
    text += " " + shell_word(word);
  }
  // Only a manifest can have named it otherwise; the last --set of a path holds.
  if (begins_elsewhere && !replaced) text += " --set spec.training.resumeFromCheckpoint=true";
  return text;
}

}  // namespace dsj::cli

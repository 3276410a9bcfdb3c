#include "cli/run/resume_command.h"

#include <string_view>
#include <vector>

namespace dsj::cli {
namespace {

constexpr std::string_view kFrom = "--resume_from_checkpoint";
constexpr std::string_view kOverwrite = "--overwrite_output_dir";

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

/// Whether args[i] is the option; moves i to its last word.
bool take(Arguments args, size_t& i, std::string_view option) {
  if (args[i].starts_with(std::string(option) + "=")) return true;
  if (args[i] != option) return false;
  if (i + 1 < args.size() && !args[i + 1].starts_with("--")) ++i;
  return true;
}

}  // namespace

std::string resume_command(Arguments args, const std::optional<std::string>& from,
                           bool overwrites) {
  const bool begins_elsewhere = from && *from != "true";
  std::string text = "dsj run";
  bool replaced = false, left_out = false;
  for (size_t i = 0; i < args.size(); ++i) {
    std::string word = args[i];
    if (overwrites && take(args, i, kOverwrite)) {
      left_out = true;
      continue;
    }
    if (begins_elsewhere && take(args, i, kFrom)) {
      word = std::string(kFrom) + "=true";
      replaced = true;
    }
    text += " " + shell_word(word);
  }
  // Otherwise a manifest has set it; the last --set of a path takes precedence.
  if (begins_elsewhere && !replaced) text += " --set spec.training.resumeFromCheckpoint=true";
  if (overwrites && !left_out) text += " --set spec.training.overwriteOutputDir=false";
  return text;
}

}  // namespace dsj::cli

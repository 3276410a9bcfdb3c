// dsj generate and dsj chat: verbs of dsj-train with the same arguments. The engine is a
// separate program, so that dsj needs no libtorch. Its output and exit code are passed on,
// except the loader's exit code if libtorch is missing.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/check/hub_cache.h"
#include "cli/programs.h"
#include "cli/verbs.h"
#include "common/argument_introspection.h"
#include "job/contract.h"
#include "job/generate_arguments.h"
#include "job/missing_library.h"

namespace dsj::cli {
namespace {

/// The directory of a model or hub id; an adapter's directory unchanged.
Result<std::string> directory_of(const std::string& model) {
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::path(model) / "adapter_config.json", ignored))
    return model;
  return find_model(model, hub_cache_directory());
}

/// The index of the word that names the model in the parsed `args`: the value of --model for
/// generate, the positional argument for chat. Other words may be equal to it.
size_t word_of_model(Arguments args) {
  constexpr std::string_view kOption = "--model";
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    if (word == kOption) return i + 1;
    if (word.starts_with("--model=") || !word.starts_with("-")) return i;
    if (word != "--raw" && !word.contains('=')) ++i;  // all other options take the next word
  }
  return args.size();
}

/// Runs the engine's verb with `args`, with `model` replaced by its directory.
int run_engine(const char* verb, Arguments args, const std::string& model) {
  const auto directory = directory_of(model);
  if (!directory) return report(verb, directory.error());
  const auto engine = engine_program();
  if (!engine) return report(verb, engine.error());
  std::vector<std::string> words = {*engine, verb};
  words.insert(words.end(), args.begin(), args.end());
  if (const size_t at = word_of_model(args); at < args.size()) {
    std::string& word = words[at + 2];
    if (word.ends_with(model)) word.replace(word.size() - model.size(), model.size(), *directory);
  }
  const auto code = run_to_the_end(std::move(words));
  if (!code) return report(verb, code.error());
  if (*code != contract::kExitNotStarted) return *code;
  return report(verb, {ErrorKind::Environment, kMissingLibrary, *engine, ""});
}

}  // namespace

int run_generate(Arguments args) {
  GenerateArguments arguments;
  ArgumentParser parser(kGenerateDescription, "dsj generate");
  add_generate_arguments(parser, arguments);
  if (const auto over = parser.parse(args)) return *over;
  return run_engine("generate", args, arguments.model);
}

int run_chat(Arguments args) {
  ChatArguments arguments;
  ArgumentParser parser(kChatDescription, "dsj chat");
  add_chat_arguments(parser, arguments);
  if (const auto over = parser.parse(args)) return *over;
  return run_engine("chat", args, arguments.model);
}

}  // namespace dsj::cli

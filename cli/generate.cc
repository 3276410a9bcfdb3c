// dsj generate: `dsj-train generate` with the same arguments. The engine is a program of its own,
// so that dsj needs no libtorch. Its output is its own, and so is its exit code, but for the loader's:
// without libtorch the program never begins.
#include <string>
#include <vector>

#include "cli/programs.h"
#include "cli/verbs.h"
#include "common/argument_introspection.h"
#include "job/contract.h"
#include "job/generate_arguments.h"
#include "job/missing_library.h"

namespace dsj::cli {

int run_generate(Arguments args) {
  if (ParserObserver::active()) {
    GenerateArguments arguments;
    ArgumentParser parser(kGenerateDescription, "dsj generate");
    add_generate_arguments(parser, arguments);
    return parser.parse(args).value_or(0);
  }
  const auto engine = engine_program();
  if (!engine) return report("generate", engine.error());
  std::vector<std::string> words = {*engine, "generate"};
  words.insert(words.end(), args.begin(), args.end());
  const auto code = run_to_the_end(std::move(words));
  if (!code) return report("generate", code.error());
  if (*code != contract::kExitNotStarted) return *code;
  return report("generate", {ErrorKind::Environment, kMissingLibrary, *engine, ""});
}

}  // namespace dsj::cli

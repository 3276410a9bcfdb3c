// dsj VERB [ARGUMENTS]: finds the verb, nothing else. Also installed as kubectl-dsj.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "common/text.h"

namespace {

struct Verb {
  const char* name;
  const char* summary;
  int (*run)(dsj::cli::Arguments);
};

/// One row per verb, in the order of the help text.
const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table = {
      {"validate", "check a ds_config or a DeepSpeedJob", dsj::cli::run_validate},
      {"plan", "show what a DeepSpeedJob would run", dsj::cli::run_plan},
      {"run", "run a DeepSpeedJob on this machine", dsj::cli::run_run},
      {"import", "a DeepSpeedJob from ROLL, torchrun, deepspeed or a hostfile",
       dsj::cli::run_import},
      {"plot", "draw a run's curves in the terminal and as a page", dsj::cli::run_plot},
      {"generate", "answers the questions of a data file with a model", dsj::cli::run_generate},
      {"merge", "adds a LoRA adapter into its base model", dsj::cli::run_merge},
  };
  return table;
}

void print_help(std::FILE* out) {
  std::fputs("usage: dsj VERB [ARGUMENTS]\n\nverbs:\n", out);
  for (const Verb& verb : verbs()) std::fprintf(out, "  %-10s %s\n", verb.name, verb.summary);
  std::fputs("\n`dsj VERB --help` shows a verb's arguments.\n", out);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (args.empty()) {
    print_help(stderr);
    return 2;
  }
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    print_help(stdout);
    return 0;
  }
  if (args[0] == "--version") {
    std::puts("dsj " DSJ_VERSION);
    return 0;
  }
  std::vector<std::string> names;
  for (const Verb& verb : verbs()) {
    names.emplace_back(verb.name);
    if (args[0] != verb.name) continue;
    try {
      return verb.run(dsj::cli::Arguments(args).subspan(1));
    } catch (const std::exception& defect) {  // a verb promises not to; the user still needs a line
      std::fprintf(stderr, "dsj %s: internal error: %s\n", verb.name, defect.what());
      return 1;
    }
  }
  const std::string hint = dsj::text::did_you_mean(args[0], names);
  std::fprintf(stderr, "dsj: \"%s\" is not a verb%s%s\n", args[0].c_str(), hint.empty() ? "" : ": ",
               hint.c_str());
  print_help(stderr);
  return 2;
}

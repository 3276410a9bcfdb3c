// dsj VERB [ARGUMENTS]: finds the verb, nothing else. Also installed as kubectl-dsj, which kubectl
// runs as `kubectl dsj`.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cli/cluster/verbs.h"
#include "cli/verbs.h"
#include "common/text.h"

namespace {

/// A cluster verb with the real connection; only tests give another.
template <int (*verb)(dsj::cli::Arguments, const dsj::cli::Connect&)>
int on_cluster(dsj::cli::Arguments args) {
  return verb(args, dsj::cli::connect_to_cluster);
}

struct Verb {
  const char* name;
  const char* summary;
  int (*run)(dsj::cli::Arguments);
};

/// One row per verb, in the order of the help text.
const std::vector<Verb>& verbs() {
  using namespace dsj::cli;
  static const std::vector<Verb> table = {
      {"validate", "check a ds_config or a DeepSpeedJob", run_validate},
      {"plan", "show what a DeepSpeedJob would run", run_plan},
      {"run", "run a DeepSpeedJob on this machine", run_run},
      {"import", "a DeepSpeedJob from ROLL, torchrun, deepspeed, a hostfile or another job kind",
       run_import},
      {"plot", "draw a run's or a job's curves in the terminal and as a page",
       on_cluster<run_plot_any>},
      {"generate", "answers the questions of a data file with a model", run_generate},
      {"tune", "looks for a faster ds_config by short runs", run_tune},
      {"analyze", "measures the rows of a data file, for a curriculum by a metric", run_analyze},
      {"merge", "adds a LoRA adapter into its base model", run_merge},
      {"checkpoint", "shows a checkpoint, takes one over from DeepSpeed, writes its weights",
       run_checkpoint},
      {"submit", "creates a job in a cluster, after the checks of validate",
       on_cluster<run_submit>},
      {"get", "jobs of a cluster", on_cluster<run_get>},
      {"describe", "one job of a cluster, for people", on_cluster<run_describe>},
      {"logs", "the log of a job or of one rank", on_cluster<run_logs>},
      {"wait", "until a job has ended, runs, or has done a step", on_cluster<run_wait>},
      {"top", "how fast the running jobs train", on_cluster<run_top>},
      {"suspend", "a job saves one step and gives its pods back", on_cluster<run_suspend>},
      {"resume", "a suspended job goes on", on_cluster<run_resume>},
      {"scale", "a job goes on with more or fewer workers", on_cluster<run_scale>},
      {"restart", "a job's pods are made anew", on_cluster<run_restart>},
      {"exec", "a command in a worker's container", on_cluster<run_exec>},
      {"debug", "all that a colleague needs to see of a job", on_cluster<run_debug>},
  };
  return table;
}

void print_help(std::FILE* out) {
  std::fputs("usage: dsj VERB [ARGUMENTS]\n\nverbs:\n", out);
  for (const Verb& verb : verbs()) std::fprintf(out, "  %-10s %s\n", verb.name, verb.summary);
  std::fputs("\n`dsj VERB --help` shows a verb's arguments.\n", out);
}

/// Whether this is `kubectl dsj`. There the names in `plot NAME` are jobs, even if directories
/// exist.
bool is_plugin(const char* program) {
  return std::string(program).ends_with("kubectl-dsj");
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
      if (args[0] == "plot" && is_plugin(argv[0]))
        return dsj::cli::run_plot_jobs(dsj::cli::Arguments(args).subspan(1));
      return verb.run(dsj::cli::Arguments(args).subspan(1));
    } catch (const std::exception& defect) {  // verbs promise not to throw
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

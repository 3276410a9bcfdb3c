// dsj VERB [ARGUMENTS]: runs the verb. Also installed as kubectl-dsj, which kubectl
// runs as `kubectl dsj`.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cli/cluster/other_verbs.h"
#include "cli/cluster/verbs.h"
#include "cli/completion.h"
#include "cli/exit_codes.h"
#include "cli/verbs.h"
#include "common/argument_introspection.h"
#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "common/standard_streams.h"
#include "common/text.h"
#include "common/version/version.h"

namespace {

/// A cluster verb with the real connection; tests pass another one.
template <int (*verb)(dsj::cli::Arguments, const dsj::cli::Connect&)>
int on_cluster(dsj::cli::Arguments args) {
  return verb(args, dsj::cli::connect_to_cluster);
}

enum class Place { Machine, Cluster };

struct Verb {
  Place place;
  const char* name;
  const char* summary;
  int (*run)(dsj::cli::Arguments);
  std::vector<std::string> second = {};  ///< subcommands, each with its own parser
};

int run_completion(dsj::cli::Arguments args);
int run_man(dsj::cli::Arguments args);

/// One row per verb, in the order of the help text and of README.md.
const std::vector<Verb>& verbs() {
  using namespace dsj::cli;
  using enum Place;
  static const std::vector<Verb> table = {
      {Machine, "quickstart", "makes a small model, trains it, and asks it before and after",
       run_quickstart},
      {Machine, "init", "writes a job with comments for a model and a data file", run_init},
      {Machine, "validate", "checks a ds_config or a job", run_validate},
      {Machine, "plan", "shows memory, steps, learning rates and traffic before a run", run_plan},
      {Machine, "run", "trains a job on this machine", run_run},
      {Machine,
       "data",
       "shows how a job's rows are read, counts bad rows",
       run_data,
       {"show", "check"}},
      {Machine, "import",
       "converts a ROLL pipeline, a torchrun or deepspeed line, a hostfile or a Kubeflow job",
       run_import},
      {Machine, "tune", "searches for a faster ds_config with short runs", run_tune},
      {Machine, "analyze", "measures the rows of a data file, for a curriculum", run_analyze},
      {Machine, "plot", "draws a run's or a job's curves in the terminal and as a page",
       on_cluster<run_plot_any>},
      {Machine, "generate", "answers the questions of a data file with a model", run_generate},
      {Machine, "chat", "talks with a model", run_chat},
      {Machine, "merge", "adds a LoRA adapter to its base model", run_merge},
      {Machine, "add-tokens", "gives a model tokens that it lacks", run_add_tokens},
      {Machine,
       "export",
       "writes a model as a GGUF file, for llama.cpp and ollama",
       run_export,
       {"gguf"}},
      {Machine,
       "checkpoint",
       "shows a checkpoint, imports one from DeepSpeed, exports one to it, writes its weights",
       run_checkpoint,
       {"show", "import", "export"}},
      {Machine, "completion", "prints the completions of bash, zsh or fish", run_completion},
      {Machine, "man", "writes the manual pages into a directory", run_man},
      {Cluster, "submit", "checks a job as validate does, and creates it", on_cluster<run_submit>},
      {Cluster, "get", "lists jobs", on_cluster<run_get>},
      {Cluster, "describe", "shows a job: progress, ranks, failures and their last log lines",
       on_cluster<run_describe>},
      {Cluster, "logs", "shows the log of a job or of one rank", on_cluster<run_logs>},
      {Cluster, "wait", "waits until a job has ended, runs, or has done a step",
       on_cluster<run_wait>},
      {Cluster, "top", "shows how fast the running jobs train", on_cluster<run_top>},
      {Cluster, "suspend", "saves one step and releases the pods", on_cluster<run_suspend>},
      {Cluster, "resume", "continues a suspended job", on_cluster<run_resume>},
      {Cluster, "scale", "saves one step and continues with another number of workers",
       on_cluster<run_scale>},
      {Cluster, "restart", "saves one step and continues in new pods", on_cluster<run_restart>},
      {Cluster, "exec", "runs a command in a worker's container", on_cluster<run_exec>},
      {Cluster, "debug", "collects a support bundle, secrets removed", on_cluster<run_debug>},
  };
  return table;
}

void print_help(std::FILE* out) {
  const auto list = [out](Place place) {
    for (const Verb& verb : verbs())
      if (verb.place == place) std::fprintf(out, "  %-10s  %s\n", verb.name, verb.summary);
  };
  std::fputs("usage: dsj VERB [ARGUMENTS]\n\non one machine:\n", out);
  list(Place::Machine);
  std::fputs("\non a cluster, also as `kubectl dsj VERB`:\n", out);
  list(Place::Cluster);
  std::fputs(
      "\n`dsj VERB --help` shows a verb's arguments, `dsj --version [-o json]` the version.\n\n",
      out);
  std::fputs("exit codes:\n", out);
  for (const auto& [code, meaning] : dsj::cli::kExitMeanings)
    std::fprintf(out, "  %-10d  %s\n", code, meaning);
}

/// The arguments of all verbs, from their parsers.
std::vector<dsj::cli::Command> commands() {
  std::vector<dsj::cli::Command> all;
  for (const Verb& verb : verbs()) {
    const auto observe = [&](const std::string& second) {
      const dsj::ParserObserver observer([&](dsj::ParserDescription parser) {
        all.push_back({.words = verb.name + (second.empty() ? "" : " " + second),
                       .summary = verb.summary,
                       .parser = std::move(parser)});
      });
      const std::vector<std::string> args(second.empty() ? 0 : 1, second);
      verb.run(args);
    };
    if (verb.second.empty()) observe("");
    for (const std::string& second : verb.second) observe(second);
  }
  return all;
}

int run_completion(dsj::cli::Arguments args) {
  using namespace dsj::cli;
  std::string shell;
  dsj::ArgumentParser parser(
      "Prints the completions of dsj for a shell. For bash: source <(dsj completion bash)",
      "dsj completion");
  parser.option("SHELL", shell).required().one_of({"bash", "zsh", "fish"});
  if (const auto over = parser.parse(args)) return *over;
  const auto complete = shell == "bash"  ? bash_completion
                        : shell == "zsh" ? zsh_completion
                                         : fish_completion;
  std::fputs(complete(commands()).c_str(), stdout);
  return kExitOk;
}

int run_man(dsj::cli::Arguments args) {
  std::string directory;
  dsj::ArgumentParser parser("Writes dsj.1 and a page for each verb.", "dsj man");
  parser.option("DIR", directory, "a directory, for example ~/.local/share/man/man1").required();
  if (const auto over = parser.parse(args)) return *over;
  dsj::PosixFiles files;
  if (const auto made = files.make_dirs(directory); !made)
    return dsj::cli::report("man", made.error());
  for (const auto& [name, text] :
       dsj::cli::manual_pages(commands(), "dsj " + dsj::version().release)) {
    const auto written = files.write_atomically(dsj::path_join(directory, name), text);
    if (!written) return dsj::cli::report("man", written.error());
  }
  return dsj::cli::kExitOk;
}

/// Whether this is `kubectl dsj`. There the names in `plot NAME` are jobs, even if such
/// directories exist.
bool is_plugin(const char* program) {
  return std::string(program).ends_with("kubectl-dsj");
}

/// The verb's exit code. A run that is done stays done: its files have what it printed.
int after_output(const std::string& verb, int code) {
  using namespace dsj::cli;
  return dsj::code_after_output("dsj " + verb, code, verb == "run" ? kExitOk : kExitSurroundings);
}

}  // namespace

int main(int argc, char** argv) {
  dsj::open_standard_streams();
  const std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (args.empty()) {
    print_help(stderr);
    return 2;
  }
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    print_help(stdout);
    return dsj::code_after_output("dsj", 0, dsj::cli::kExitSurroundings);
  }
  if (const auto over = dsj::answer_version("dsj", args))
    return dsj::code_after_output("dsj", *over, dsj::cli::kExitSurroundings);
  std::vector<std::string> names;
  for (const Verb& verb : verbs()) {
    names.emplace_back(verb.name);
    if (args[0] != verb.name) continue;
    try {
      if (args[0] == "plot" && is_plugin(argv[0]))
        return after_output(args[0], dsj::cli::run_plot_jobs(dsj::cli::Arguments(args).subspan(1)));
      return after_output(args[0], verb.run(dsj::cli::Arguments(args).subspan(1)));
    } catch (const std::exception& defect) {  // verbs must not throw
      std::fprintf(stderr, "dsj %s: internal error: %s\n", verb.name, defect.what());
      return 1;
    }
  }
  const std::string other = dsj::cli::verb_of_others(args[0]);
  const std::string hint = other.empty() ? dsj::text::did_you_mean(args[0], names) : other;
  std::fprintf(stderr, "dsj: \"%s\" is not a verb%s%s\n", args[0].c_str(), hint.empty() ? "" : ": ",
               hint.c_str());
  print_help(stderr);
  return 2;
}

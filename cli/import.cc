// dsj import KIND ...: converts the input of another launcher to a DeepSpeedJob. Runs nothing.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "cli/import/kubeflow.h"
#include "cli/import/launcher.h"
#include "cli/import/recipe.h"
#include "cli/import/roll.h"
#include "cli/result_format.h"
#include "cli/verbs.h"
#include "common/argument_introspection.h"
#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "job/spec/job.h"
#include "job/spec/yaml.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using jobimport::Imported;

constexpr int64_t kMaxBytes = 1 << 20;

constexpr char kImportHelp[] =
    R"(usage: dsj import roll FILE.yaml [--role actor_train]
       dsj import torchrun SCRIPT.sh                 or:  dsj import torchrun -- torchrun ...
       dsj import deepspeed SCRIPT.sh                or:  dsj import deepspeed -- deepspeed ...
       dsj import accelerate SCRIPT.sh               or:  dsj import accelerate -- accelerate launch ...
       dsj import trl SCRIPT.sh                      or:  dsj import trl -- trl sft ...
       dsj import swift SCRIPT.sh                    or:  dsj import swift -- swift sft ...
       dsj import hostfile FILE
       dsj import pytorchjob|mpijob|trainjob FILE.yaml
       dsj import llamafactory|axolotl FILE.yaml

Prints a DeepSpeedJob that `dsj validate --elsewhere` accepts. Comments above it and stderr list what is left open
and what is not carried over. Files are read, never run.
  --output FILE         write it to FILE; relative paths become absolute if FILE is in another
                        directory
  -o yaml|json          the form of the job (yaml)
      --force           replace FILE
      --set PATH=VALUE  a field of the manifest: --set spec.workers.slotsPerWorker=8
      --role ROLE       (roll) the role to import (default: the only one that trains; if there are
                        several, lists them)
      --ds-config FILE  (pytorchjob, mpijob, trainjob) becomes the job's ds_config
      --launcher NAME   (the same) Native: this engine trains; Command: the container's program does
      --search-path DIR (roll) another directory in which `defaults` are looked up
      -- WORDS          (torchrun to swift) the line itself; after SCRIPT: its arguments
Exit codes: 0 done, 1 the job would not validate, 2 bad input.
)";

struct Options {
  std::string kind, file, role, output, format = "yaml";
  std::string ds_config, launcher = "Native";
  bool force = false;
  std::vector<std::string> overrides, search_paths;
  std::vector<std::string> words;  ///< after --
};

Result<Imported> import_launch(PosixFiles& files, const Options& options,
                               jobimport::Launcher launcher) {
  if (options.file.empty()) {
    if (options.words.empty())
      return bad_input("expected a script, or -- and the line itself", "dsj import");
    return import_line(files, options.words, launcher, "command line");
  }
  DSJ_TRY(const std::string text, files.read_all(options.file, kMaxBytes));
  std::map<std::string, std::string> variables;
  for (size_t i = 0; i < options.words.size(); ++i)
    variables[std::to_string(i + 1)] = options.words[i];
  DSJ_TRY(const jobimport::Script script,
          jobimport::read_script(text, options.file, std::move(variables)));
  return import_script(files, script, launcher, options.file);
}

void list_roles(const jobimport::RollPipeline& pipeline) {
  std::printf("%-28s %-26s %5s  %s\n", "role", "strategy", "ranks", "");
  for (const auto& role : pipeline.roles)
    std::printf("%-28s %-26s %5s  %s\n", role.path.c_str(),
                role.strategy.empty() ? "-" : role.strategy.c_str(),
                role.ranks > 0 ? std::to_string(role.ranks).c_str() : "-",
                role.imports() ? "--role imports it" : "left alone");
  if (pipeline.roles.empty()) std::printf("(no roles: a file of settings)\n");
}

/// Prints all findings except warnings on stderr. Whether there is no error.
bool print_findings(const jobspec::Job& job, const std::vector<dsconfig::Finding>& findings) {
  bool good = true;
  for (const auto& finding : findings) {
    if (finding.severity == dsconfig::Finding::Severity::Warning) continue;
    std::fprintf(stderr, "%s\n", jobspec::to_line(job, finding).c_str());
    good = good && finding.severity != dsconfig::Finding::Severity::Error;
  }
  return good;
}

/// Whether the manifest is valid on this machine or, if `in_cluster`, for the operator.
bool validates(const Imported& imported, const std::string& path, bool in_cluster) {
  auto job = in_cluster ? jobspec::read_cluster_manifest(imported.manifest)
                        : jobspec::parse_job_yaml(jobimport::to_text(imported), path);
  if (!job) {
    std::fprintf(stderr, "dsj import: the job would not validate: %s\n",
                 job.error().to_string().c_str());
    return false;
  }
  if (in_cluster) job->source = path;
  // A ConfigMap can be read only in the cluster.
  const bool unknown = job->ds_config_map.has_value();
  return print_findings(*job, unknown ? job->findings : jobspec::resolve(*job, {}).findings);
}

Status write(PosixFiles& files, const Options& options, const std::string& text) {
  if (options.output.empty()) {
    std::fputs(text.c_str(), stdout);
    return {};
  }
  DSJ_TRY(const bool there, files.exists(options.output));
  if (there && !options.force)
    return bad_input("the file exists", options.output, "--force replaces it");
  return files.write_atomically(options.output, text);
}

std::optional<jobimport::Launcher> launcher_kind(const std::string& name) {
  using jobimport::Launcher;
  if (name == "torchrun") return Launcher::Torchrun;
  if (name == "deepspeed") return Launcher::DeepSpeed;
  if (name == "accelerate") return Launcher::Accelerate;
  if (name == "trl") return Launcher::Trl;
  if (name == "swift") return Launcher::Swift;
  return std::nullopt;
}

std::optional<jobimport::KubeflowKind> kubeflow_kind(const std::string& name) {
  using jobimport::KubeflowKind;
  if (name == "pytorchjob") return KubeflowKind::PyTorchJob;
  if (name == "mpijob") return KubeflowKind::MPIJob;
  if (name == "trainjob") return KubeflowKind::TrainJob;
  return std::nullopt;
}

Result<Imported> import_object(PosixFiles& files, const Options& options) {
  const auto kind = *kubeflow_kind(options.kind);
  DSJ_TRY(const auto document,
          jobspec::read_yaml(options.file, jobspec::Dialect::Core, jobimport::name_of(kind)));
  return import_kubeflow(
      files, kind, document.value, options.file,
      {.keep_program = options.launcher == "Command", .ds_config = options.ds_config});
}

Result<Imported> import_training_file(PosixFiles& files, const Options& options) {
  // Both tools read YAML 1.1: 4_096 is a number, yes is true.
  DSJ_TRY(const auto document, jobspec::read_yaml(options.file, jobspec::Dialect::Omega));
  const auto recipe =
      options.kind == "axolotl" ? jobimport::Recipe::Axolotl : jobimport::Recipe::LlamaFactory;
  return import_recipe(files, recipe, document.value, options.file);
}

int import_to_manifest(PosixFiles& files, const Options& options, Result<Imported> imported) {
  if (!imported) return report("import", imported.error());
  if (const auto done = jobimport::finish(*imported, options.overrides); !done)
    return report("import", done.error());
  const fs::path here = fs::current_path();
  const bool container_paths = kubeflow_kind(options.kind).has_value();
  if (!container_paths && !options.output.empty() &&
      fs::absolute(options.output).parent_path().lexically_normal() != here)
    jobimport::make_paths_absolute(imported->manifest, here.string());
  for (const std::string& line : imported->predefined)
    std::fprintf(stderr, "predefined: %s\n", line.c_str());
  for (const std::string& line : imported->left_open)
    std::fprintf(stderr, "left open: %s\n", line.c_str());
  for (const std::string& line : imported->not_carried)
    std::fprintf(stderr, "not carried over: %s\n", line.c_str());
  const std::string text =
      options.format == "json" ? document_text(imported->manifest) : jobimport::to_text(*imported);
  const std::string name = options.output.empty() ? "imported.yaml" : options.output;
  if (!validates(*imported, name, container_paths)) return 1;
  if (const auto written = write(files, options, text); !written)
    return report("import", written.error());
  return 0;
}

int import_roll(PosixFiles& files, const Options& options) {
  const auto pipeline = jobimport::read_roll(files, options.file, options.search_paths);
  if (!pipeline) return report("import", pipeline.error());
  for (const std::string& note : pipeline->notes) std::fprintf(stderr, "%s\n", note.c_str());
  std::string role = options.role;
  const auto trains = std::ranges::count_if(pipeline->roles, &jobimport::RollRole::imports);
  if (role.empty() && trains == 1) {
    role = std::ranges::find_if(pipeline->roles, &jobimport::RollRole::imports)->path;
    std::fprintf(stderr, "role: %s, the only one that trains with DeepSpeed\n", role.c_str());
  }
  if (role.empty()) {
    for (const auto& substitute : pipeline->substitutes)
      std::fprintf(stderr, "predefined: %s\n", to_line(substitute).c_str());
    list_roles(*pipeline);
    return 0;
  }
  return import_to_manifest(files, options, import_role(*pipeline, role));
}

/// Removes "--set spec.path=value" from a line; users append it to the line, as the hint says.
std::vector<std::string> overrides_in(std::vector<std::string>& line) {
  std::vector<std::string> own, rest;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool two = line[i] == "--set" && i + 1 < line.size() && line[i + 1].starts_with("spec.");
    (two || line[i].starts_with("--set=spec.") ? own : rest).push_back(line[i]);
    if (two) own.push_back(line[++i]);
  }
  line = std::move(rest);
  return own;
}

}  // namespace

int run_import(Arguments args) {
  Options options;
  const auto dashes = std::find(args.begin(), args.end(), "--");
  std::vector<std::string> own(args.begin(), dashes);
  if (dashes != args.end()) options.words.assign(dashes + 1, args.end());
  for (std::string& word : overrides_in(options.words)) own.push_back(std::move(word));
  if (!ParserObserver::active() && (own.empty() || own[0] == "--help" || own[0] == "-h")) {
    std::fputs(kImportHelp, own.empty() ? stderr : stdout);
    return own.empty() ? 2 : 0;
  }
  ArgumentParser parser{kImportHelp, "dsj import"};
  parser.no_help();
  parser.option("KIND", options.kind)
      .required()
      .one_of({"roll", "torchrun", "deepspeed", "accelerate", "trl", "swift", "hostfile",
               "pytorchjob", "mpijob", "trainjob", "llamafactory", "axolotl"});
  parser.option("FILE", options.file);
  parser.option("--output", options.output);
  parser.option("-o", options.format).one_of({"yaml", "json"});
  parser.flag("--force", options.force);
  parser.option("--role", options.role);
  parser.option("--ds-config", options.ds_config);
  parser.option("--launcher", options.launcher).one_of({"Native", "Command"});
  parser.option("--search-path", options.search_paths).one_word_each();
  parser.option("--set", options.overrides).one_word_each();
  if (const auto over = parser.parse(own)) return *over;

  PosixFiles files;
  const auto launcher = launcher_kind(options.kind);
  const bool launch = launcher.has_value();
  if (!launch && (options.file.empty() || !options.words.empty()))
    return report("import", Error{ErrorKind::BadInput, "expected one file", "dsj import", ""});
  if (options.kind == "roll") return import_roll(files, options);
  if (launch) return import_to_manifest(files, options, import_launch(files, options, *launcher));
  if (kubeflow_kind(options.kind))
    return import_to_manifest(files, options, import_object(files, options));
  if (options.kind == "llamafactory" || options.kind == "axolotl")
    return import_to_manifest(files, options, import_training_file(files, options));
  const auto text = files.read_all(options.file, kMaxBytes);
  if (!text) return report("import", text.error());
  return import_to_manifest(files, options, jobimport::import_hostfile(*text, options.file));
}

}  // namespace dsj::cli

// dsj tune JOB.yaml: searches for a faster ds_config with short runs (docs/plan.md), by the
// file's section "autotuning" or by the arguments.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/check/quantity.h"
#include "cli/input.h"
#include "cli/result_format.h"
#include "cli/tune/tune_loop.h"
#include "cli/tune/tune_space.h"
#include "cli/tune/tune_trials.h"
#include "cli/verbs.h"
#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "job/dsconfig/read/reader.h"
#include "job/dsconfig/sections/autotuning.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;

struct TuneArguments {
  std::string file, metric, tuner, results, experiments, format;
  std::vector<std::string> overrides;
  std::vector<std::string> stages;
  std::optional<int64_t> trials, early_stopping, start, end, largest;
  bool offload = false, keep_batch = false, everything = false, full = false;
  GivenLimits given;
};

std::optional<int> parse(Arguments args, TuneArguments& to) {
  ArgumentParser parser{
      "Searches for a faster ds_config with short runs of the job on this machine. Configurations "
      "that cannot fit are not started. Ctrl-C stops; the same command continues. Exit code: 0 "
      "done, 1 nothing ran, 2 bad input, 130 interrupted.",
      "dsj tune"};
  parser.option("JOB.yaml", to.file, "a DeepSpeedJob (YAML)").required();
  parser.option("--set", to.overrides, "spec.path=value, any number of times").one_word_each();
  parser
      .option("--stages", to.stages,
              "ZeRO stages, for example 0,1,2,3; default: those of the autotuning section, or all "
              "without a section")
      .one_of({"0", "1", "2", "3"})
      .one_word_each()
      .separated_by(',');
  parser.flag("--offload", to.offload, "also with the optimizer's state in host memory");
  parser.flag("--keep-batch", to.keep_batch,
              "keeps train_batch_size: micro-batch x accumulation as in the file");
  parser.flag("--full", to.full,
              "also the other keys of ZeRO, around the best (autotuning.fast false)");
  parser.flag("--all", to.everything, "tries every configuration that fits, without pruning");
  parser.option("--metric", to.metric, "throughput, latency or flops")
      .one_of({"throughput", "latency", "flops"});
  parser.option("--tuner", to.tuner, "gridsearch, random or model_based")
      .one_of({"gridsearch", "random", "model_based"});
  parser.option("--trials", to.trials, "the largest number of trials").positive();
  parser.option("--early-stopping", to.early_stopping, "stops after N trials without a better one")
      .positive();
  parser.option("--first-step", to.start, "the first measured step").positive();
  parser.option("--last-step", to.end, "the last measured step, which ends the trial").positive();
  parser.option("--max-micro-batch", to.largest, "the largest micro-batch").positive();
  parser.option("--results", to.results, "a directory; default: autotuning.results_dir");
  parser.option("--experiments", to.experiments, "a directory; default: autotuning.exps_dir");
  const auto memory = [&](const std::string& text) -> std::optional<std::string> {
    to.given.memory = parse_quantity(text);
    if (to.given.memory) return std::nullopt;
    return "\"" + text + "\" is not an amount of memory";
  };
  parser.option("--memory", memory,
                "memory of one worker, for example 8Gi (default: the limit of its container)");
  add_format_and_output(parser, to.format);
  return parser.parse(args);
}

/// Arguments take precedence over the section.
void apply(const TuneArguments& args, dsconfig::Autotuning& settings) {
  if (!args.metric.empty()) settings.metric = args.metric;
  if (!args.tuner.empty()) settings.tuner_type = args.tuner;
  if (args.trials) settings.tuner_num_trials = *args.trials;
  if (args.early_stopping) settings.tuner_early_stopping = *args.early_stopping;
  if (args.start) settings.start_profile_step = *args.start;
  if (args.end) settings.end_profile_step = *args.end;
  if (args.largest) settings.max_micro_batch = *args.largest;
  if (args.full) settings.fast = false;
  if (!args.results.empty()) settings.results_dir = args.results;
  if (!args.experiments.empty()) settings.exps_dir = args.experiments;
}

std::vector<int> stages_of(const TuneArguments& args, const dsconfig::TuneRequest& request) {
  std::vector<int> stages;
  for (const std::string& stage : args.stages) stages.push_back(stage[0] - '0');
  if (stages.empty()) stages = request.asked ? request.stages : std::vector<int>{0, 1, 2, 3};
  std::ranges::sort(stages);
  stages.erase(std::ranges::unique(stages).begin(), stages.end());
  return stages;
}

Result<jobspec::Job> job_of(const TuneArguments& args) {
  DSJ_TRY(auto input, read_input(args.file, args.overrides));
  if (input.syntax) return std::unexpected(*input.syntax);
  if (!input.job)
    return bad_input("this is a bare ds_config", args.file, "tune needs a DeepSpeedJob");
  if (input.job->runs_user_program())
    return bad_input("launcher: Command runs a program of your own", args.file,
                     "only this engine's own steps can be tuned");
  return std::move(*input.job);
}

Result<int> tune_job(const TuneArguments& args) {
  JsonResult result(args.format);
  DSJ_TRY(jobspec::Job job, job_of(args));
  dsconfig::TuneRequest request = dsconfig::tune_request(job.ds_config);
  dsconfig::locate(request.findings, job.ds_positions);
  bool sound = true;
  for (const auto& finding : request.findings) {
    std::fprintf(stderr, "%s\n", jobspec::to_line(job, finding).c_str());
    sound = sound && finding.severity == dsconfig::Finding::Severity::Warning;
  }
  if (!sound) return bad_input("the autotuning section cannot be used", args.file);
  apply(args, request.settings);
  if (request.settings.start_profile_step > request.settings.end_profile_step)
    return bad_input("the first measured step is behind the last", "--first-step");
  job.ds_config = request.ds_config;
  if (job.training.output_dir.empty()) job.training.output_dir = fs::current_path().string();
  const auto absolute = [](const std::string& path) {
    return fs::absolute(path).lexically_normal().string();
  };
  const TuneOptions options{.results = absolute(request.settings.results_dir),
                            .experiments = absolute(request.settings.exps_dir),
                            .everything = args.everything};
  const ThisMachine machine;
  DSJ_TRY(const TuneSpace space, TuneSpace::make(std::move(job), request.settings,
                                                 {.stages = stages_of(args, request),
                                                  .offload = args.offload,
                                                  .keep_batch = args.keep_batch},
                                                 request.micro_batches, args.given, machine));
  size_t count = 0;
  for (const auto& group : space.groups()) count += group.size();
  std::printf("%zu configurations fit, %zu do not; tuner %s, metric %s; results in %s\n", count,
              space.pruned().size(), request.settings.tuner_type.c_str(),
              request.settings.metric.c_str(), options.results.c_str());
  for (const std::string& line : space.pruned()) std::printf("not started: %s\n", line.c_str());
  PosixFiles files;
  LocalTrials trials(files);
  TuneLoop loop(space, options, {.files = files, .trials = trials});
  DSJ_TRY(const int code, loop.run());
  if (result.wanted()) result.print(loop.outcomes());
  return code;
}

}  // namespace

int run_tune(Arguments args) {
  TuneArguments options;
  if (const auto over = parse(args, options)) return *over;
  const auto code = tune_job(options);
  return code ? *code : report("tune", code.error());
}

}  // namespace dsj::cli

#include "cli/tune/tune_loop.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/format.h"
#include "job/contract.h"

namespace dsj::cli {
namespace {

using nlohmann::json;
using tune::Candidate;
using tune::Outcome;

constexpr char kOptimal[] = "ds_config_optimal.json";
constexpr char kExperiment[] = "exp.json", kMetrics[] = "metrics.json", kFailure[] = "failure.json";
constexpr char kJob[] = "job.yaml", kOptimalJob[] = "job_optimal.yaml";
constexpr char kCommand[] = "cmd_optimal.txt", kSummary[] = "summary.txt";

tune::Metric metric_of(const std::string& name) {
  if (name == "latency") return tune::Metric::Latency;
  return name == "flops" ? tune::Metric::Flops : tune::Metric::Throughput;
}

tune::Order order_of(const std::string& name) {
  if (name == "random") return tune::Order::Random;
  return name == "model_based" ? tune::Order::Model : tune::Order::Grid;
}

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

Outcome outcome_of(const tune::Option& option, const TrialResult& result) {
  Outcome outcome{.option = option, .ran = result.end == TrialResult::End::Ran};
  if (!outcome.ran) return outcome;
  const double seconds = sum(result.step_seconds);
  outcome.step_seconds = seconds / static_cast<double>(result.step_seconds.size());
  outcome.tokens_per_second = result.tokens / seconds;
  return outcome;
}

int64_t batch_of(const Candidate& candidate, int64_t world) {
  return candidate.micro_batch * candidate.accumulation * world;
}

}  // namespace

TuneLoop::TuneLoop(const TuneSpace& space, TuneOptions options, TunePorts ports)
    : space_(space), options_(std::move(options)), ports_(ports) {
  const dsconfig::Autotuning& settings = space.settings();
  rules_ = {.metric = metric_of(settings.metric),
            .order = order_of(settings.tuner_type),
            .early_stopping = settings.tuner_early_stopping,
            .trials_max = settings.tuner_num_trials,
            .everything = options_.everything,
            .seed = static_cast<uint64_t>(space.job().training.seed.value_or(42))};
}

std::string TuneLoop::folder_of(const Candidate& candidate) const {
  return path_join(options_.results, tune::name_of(candidate));
}

json TuneLoop::experiment(const Candidate& candidate) const {
  return {{"name", tune::name_of(candidate)},
          {"ds_config", tune::ds_config_of(space_.job().ds_config, candidate)},
          {"num_gpus", space_.job().slots_per_worker},
          {"num_nodes", space_.job().replicas},
          {"hostfile", nullptr}};
}

std::string TuneLoop::job_text(const Candidate& candidate, const std::string& folder) const {
  return jobspec::to_json(space_.trial_of(candidate, path_join(folder, "run"))).dump(2) + "\n";
}

Status TuneLoop::clear() {
  auto& files = ports_.files;
  DSJ_TRY(const auto folders, files.list_dir(options_.results));
  for (const DirEntry& entry : folders) {
    const std::string path = path_join(options_.results, entry.name);
    if (entry.kind != EntryKind::Directory) continue;
    DSJ_TRY(const bool ours, files.exists(path_join(path, kExperiment)));
    if (!ours) continue;
    DSJ_TRY_STATUS(files.remove_all(path));
    DSJ_TRY_STATUS(files.remove_all(path_join(options_.experiments, entry.name + ".json")));
  }
  for (const char* name : {kOptimal, kOptimalJob, kCommand, kSummary})
    DSJ_TRY_STATUS(files.remove_all(path_join(options_.results, name)));
  return {};
}

Status TuneLoop::begin() {
  DSJ_TRY_STATUS(ports_.files.make_dirs(options_.results));
  DSJ_TRY_STATUS(ports_.files.make_dirs(options_.experiments));
  DSJ_TRY(const bool finished, ports_.files.exists(path_join(options_.results, kOptimal)));
  if (!finished || !space_.settings().overwrite) return {};
  std::fprintf(ports_.out, "the search in %s is over: a new one begins (autotuning.overwrite)\n",
               options_.results.c_str());
  return clear();
}

/// Removes the folder of an interrupted trial or of another job, but no foreign folder.
Status TuneLoop::clear_trial(const std::string& folder) {
  auto& files = ports_.files;
  DSJ_TRY(const bool there, files.exists(folder));
  if (!there) return {};
  DSJ_TRY(const auto entries, files.list_dir(folder));
  DSJ_TRY(const bool ours, files.exists(path_join(folder, kJob)));
  if (!ours && !entries.empty())
    return bad_input("a trial needs this folder, and its content is not a trial's", folder,
                     "move it away, or set autotuning.results_dir");
  return files.remove_all(folder);
}

Status TuneLoop::write_experiment(const Candidate& candidate, const std::string& folder) {
  auto& files = ports_.files;
  DSJ_TRY_STATUS(clear_trial(folder));
  DSJ_TRY_STATUS(files.make_dirs(folder));
  const json described = experiment(candidate);
  const auto write = [&](const std::string& path, const std::string& text) {
    return files.write_atomically(path, text);
  };
  DSJ_TRY_STATUS(write(path_join(folder, kJob), job_text(candidate, folder)));
  DSJ_TRY_STATUS(write(path_join(folder, "ds_config.json"), described["ds_config"].dump(2) + "\n"));
  DSJ_TRY_STATUS(write(path_join(folder, "cmd.txt"), "dsj run " + path_join(folder, kJob) + "\n"));
  DSJ_TRY_STATUS(write(path_join(options_.experiments, tune::name_of(candidate) + ".json"),
                       described.dump(2) + "\n"));
  return write(path_join(folder, kExperiment), described.dump(2) + "\n");
}

std::optional<TrialResult> TuneLoop::known(const Candidate& candidate, const std::string& folder) {
  auto& files = ports_.files;
  const auto job = files.read_all(path_join(folder, kJob));
  if (!job || *job != job_text(candidate, folder)) return std::nullopt;
  if (const auto text = files.read_all(path_join(folder, kMetrics))) {
    const json metrics = json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!metrics.is_object() || !metrics.contains("step_seconds") || !metrics.contains("tokens"))
      return std::nullopt;
    return TrialResult{.end = TrialResult::End::Ran,
                       .step_seconds = metrics["step_seconds"].get<std::vector<double>>(),
                       .tokens = metrics["tokens"]};
  }
  if (const auto text = files.read_all(path_join(folder, kFailure))) {
    const json failure = json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (failure.is_object()) return TrialResult{.failure = failure.value("failure", "failed")};
  }
  return std::nullopt;
}

Status TuneLoop::record(const tune::Option& option, const TrialResult& result,
                        const std::string& folder) {
  auto& files = ports_.files;
  if (result.end == TrialResult::End::Failed)
    return files.write_atomically(path_join(folder, kFailure),
                                  json{{"failure", result.failure}}.dump(2) + "\n");
  const Outcome outcome = outcome_of(option, result);
  const auto rows = static_cast<double>(batch_of(option.candidate, space_.job().world_size()));
  const double ranks = space_.job().world_size();
  const json metrics = {
      {"latency", outcome.step_seconds * 1e6},  // microseconds, as in DeepSpeed
      {"throughput", rows / outcome.step_seconds},
      {"FLOPS_per_gpu", 6 * space_.parameters() * outcome.tokens_per_second / ranks},
      {"tokens_per_second", outcome.tokens_per_second},
      {"tokens", result.tokens},
      {"step_seconds", result.step_seconds}};
  DSJ_TRY_STATUS(files.write_atomically(path_join(folder, kMetrics), metrics.dump(2) + "\n"));
  // Outputs of a short run that are not needed.
  for (const char* name : {contract::kModelDir, contract::kCheckpointsDir})
    DSJ_TRY_STATUS(files.remove_all(path_join(path_join(folder, "run"), name)));
  return {};
}

Result<bool> TuneLoop::attempt(const tune::Option& option, std::vector<Outcome>& tried) {
  const std::string name = tune::name_of(option.candidate), folder = folder_of(option.candidate);
  auto result = known(option.candidate, folder);
  if (result) {
    ++reused_;
  } else {
    std::fprintf(ports_.out, "trial %zu: %s ", tried_.size() + 1, name.c_str());
    std::fflush(ports_.out);
    DSJ_TRY_STATUS(write_experiment(option.candidate, folder));
    DSJ_TRY(result, ports_.trials.run({.name = name,
                                       .folder = folder,
                                       .job_file = path_join(folder, kJob),
                                       .output = path_join(folder, "run"),
                                       .first_step = space_.settings().start_profile_step,
                                       .last_step = space_.settings().end_profile_step}));
    if (result->end == TrialResult::End::Interrupted) {
      std::fputs("stopped\nthe same command continues from here\n", ports_.out);
      return false;
    }
    DSJ_TRY_STATUS(record(option, *result, folder));
    const Outcome outcome = outcome_of(option, *result);
    std::fprintf(ports_.out, "%s\n",
                 outcome.ran ? text::format("%.0f tokens/s, %.3f s a step",
                                            outcome.tokens_per_second, outcome.step_seconds)
                                   .c_str()
                             : ("failed: " + result->failure).c_str());
    std::fflush(ports_.out);
  }
  if (result->end == TrialResult::End::Failed) failures_[name] = result->failure;
  tried.push_back(outcome_of(option, *result));
  if (&tried != &tried_) tried_.push_back(tried.back());
  return true;
}

Result<bool> TuneLoop::search(const std::vector<tune::Group>& groups, tune::Rules rules) {
  // A new trial has to beat the best so far, at first the given file.
  const Outcome* best = tune::best_of(tried_, rules.metric);
  std::vector<Outcome> tried = {best ? *best : tried_.front()};
  for (;;) {
    const tune::Next next = tune::choose(groups, rules, tried);
    if (next.option == nullptr) {
      std::fprintf(ports_.out, "%s\n", next.because.c_str());
      return true;
    }
    DSJ_TRY(const bool went_on, attempt(*next.option, tried));
    if (!went_on) return false;
  }
}

std::string TuneLoop::table() const {
  const Outcome& given = tried_.front();
  std::string lines = text::format("%-34s %6s %6s %6s %12s %10s %9s\n", "experiment", "stage",
                                   "micro", "gas", "tokens/s", "s a step", "of given");
  for (const Outcome& one : tried_) {
    const Candidate& candidate = one.option.candidate;
    lines += text::format("%-34s %6d %6lld %6lld ", tune::name_of(candidate).c_str(),
                          candidate.stage, static_cast<long long>(candidate.micro_batch),
                          static_cast<long long>(candidate.accumulation));
    if (!one.ran) {
      lines += "failed: " + failures_.at(tune::name_of(candidate)) + "\n";
      continue;
    }
    const double base = tune::score_of(given, rules_.metric);
    lines += text::format("%12.0f %10.3f ", one.tokens_per_second, one.step_seconds);
    lines += base > 0 ? text::format("%8.2fx\n", tune::score_of(one, rules_.metric) / base)
                      : std::string("        -\n");
  }
  for (const std::string& line : space_.pruned()) lines += "not started: " + line + "\n";
  return lines;
}

nlohmann::json TuneLoop::outcomes() const {
  json tried = json::array();
  for (const Outcome& one : tried_) {
    const Candidate& candidate = one.option.candidate;
    const std::string name = tune::name_of(candidate);
    json entry = {{"experiment", name},
                  {"stage", candidate.stage},
                  {"microBatch", candidate.micro_batch},
                  {"accumulation", candidate.accumulation}};
    if (one.ran)
      entry.update({{"tokensPerSecond", one.tokens_per_second}, {"stepSeconds", one.step_seconds}});
    else
      entry["failure"] = failures_.at(name);
    tried.push_back(std::move(entry));
  }
  const Outcome* const best = tune::best_of(tried_, rules_.metric);
  return {{"results", options_.results},
          {"tried", tried},
          {"notStarted", space_.pruned()},
          {"best", best ? json(tune::name_of(best->option.candidate)) : json()}};
}

std::string TuneLoop::gain(const Outcome& best) const {
  const Outcome& given = tried_.front();
  const std::string name = tune::name_of(best.option.candidate);
  if (!given.ran) return "gained: " + name + " runs; the file as given does not";
  const char* what = rules_.metric == tune::Metric::Latency ? "steps/s" : "tokens/s";
  const int64_t world = space_.job().world_size();
  return text::format(
      "gained: %.2f x the %s of the file as given (%s); train_batch_size %lld -> %lld",
      tune::score_of(best, rules_.metric) / tune::score_of(given, rules_.metric), what,
      name.c_str(), static_cast<long long>(batch_of(given.option.candidate, world)),
      static_cast<long long>(batch_of(best.option.candidate, world)));
}

Status TuneLoop::write_best(const Outcome& best) {
  auto& files = ports_.files;
  const jobspec::Job job = space_.job_of(best.option.candidate);
  const std::string job_file = path_join(options_.results, kOptimalJob);
  DSJ_TRY_STATUS(files.write_atomically(job_file, jobspec::to_json(job).dump(2) + "\n"));
  DSJ_TRY_STATUS(
      files.write_atomically(path_join(options_.results, kCommand), "dsj run " + job_file + "\n"));
  DSJ_TRY_STATUS(files.write_atomically(path_join(options_.results, kSummary),
                                        table() + "\n" + gain(best) + "\n"));
  // Written last, because it marks the end of the search.
  return files.write_atomically(path_join(options_.results, kOptimal),
                                job.ds_config.dump(2) + "\n");
}

Result<int> TuneLoop::run() {
  DSJ_TRY_STATUS(begin());
  DSJ_TRY(const bool measured, attempt(space_.given(), tried_));
  if (!measured) return 130;
  DSJ_TRY(const bool searched, search(space_.groups(), rules_));
  if (!searched) return 130;
  const Outcome* best = tune::best_of(tried_, rules_.metric);
  if (best && !space_.settings().fast) {
    tune::Rules rest = rules_;
    rest.trials_max -= std::ssize(tried_) - 1;
    DSJ_TRY(const bool refined, search(space_.settings_around(best->option.candidate), rest));
    if (!refined) return 130;
    best = tune::best_of(tried_, rules_.metric);
  }
  if (reused_ > 0)
    std::fprintf(ports_.out, "%lld %s known\n", static_cast<long long>(reused_),
                 reused_ == 1 ? "outcome was" : "outcomes were");
  std::fprintf(ports_.out, "\n%s\n", table().c_str());
  if (!best) {
    std::fputs("nothing ran; each folder's stderr.log says why\n", ports_.out);
    return 1;
  }
  DSJ_TRY_STATUS(write_best(*best));
  std::fprintf(ports_.out, "%s\nwritten: %s\n", gain(*best).c_str(),
               path_join(options_.results, kOptimal).c_str());
  return 0;
}

}  // namespace dsj::cli

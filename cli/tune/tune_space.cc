#include "cli/tune/tune_space.h"

#include <algorithm>

#include "job/plan/fit.h"
#include "job/plan/memory_model.h"

namespace dsj::cli {
namespace {

using nlohmann::json;

/// Removes keys that do not affect steps, or make the first steps unlike the later ones.
void make_quiet(json& ds_config) {
  for (const char* path : {"/tensorboard", "/csv_monitor", "/flops_profiler", "/comms_logger",
                           "/curriculum_learning", "/data_efficiency/curriculum_learning",
                           "/data_efficiency/data_sampling/curriculum_learning",
                           "/data_efficiency/data_routing/random_ltd"})
    if (const json::json_pointer at(path); ds_config.contains(at))
      ds_config[at] = {{"enabled", false}};
  for (const char* key : {"wall_clock_breakdown", "memory_breakdown", "dump_state"})
    ds_config.erase(key);
}

/// The first finding that prevents a run.
std::string refusal(const dsconfig::Resolution& resolution) {
  for (const auto& finding : resolution.findings)
    if (finding.severity != dsconfig::Finding::Severity::Warning)
      return finding.path + ": " + finding.message;
  return {};
}

double mean_tokens(const MeasuredRows& rows) {
  double sum = 0;
  for (const auto& row : rows.dealt()) sum += row.tokens;
  return sum / static_cast<double>(rows.dealt().size());
}

}  // namespace

jobspec::Job TuneSpace::job_of(const tune::Candidate& candidate) const {
  jobspec::Job job = job_;
  job.ds_config = tune::ds_config_of(job_.ds_config, candidate);
  job.ds_config_inline = true;
  if (candidate.given) return job;
  job.training.per_device_train_batch_size = candidate.micro_batch;
  job.training.gradient_accumulation_steps = candidate.accumulation;
  return job;
}

jobspec::Job TuneSpace::trial_of(const tune::Candidate& candidate,
                                 const std::string& output) const {
  jobspec::Job job = job_of(candidate);
  make_quiet(job.ds_config);
  TrainingArgs& training = job.training;
  training.output_dir = output;
  training.max_steps = settings_.end_profile_step;
  training.save_strategy = "no";
  training.evaluation_strategy = "no";
  training.eval_on_start.reset();
  training.eval_steps.reset();
  training.load_best_model_at_end.reset();
  training.early_stopping_patience.reset();
  training.early_stopping_threshold.reset();
  training.report_to.reset();
  training.resume_from_checkpoint.reset();
  job.restart_policy = "Never";
  return job;
}

std::string TuneSpace::judge(const tune::Candidate& candidate, tune::Option& option) const {
  const jobspec::Job job = trial_of(candidate, job_.training.output_dir);
  const dsconfig::Resolution resolution = jobspec::resolve(job, around_.facts);
  if (!resolution.runnable()) return refusal(resolution);
  const auto limits = limits_of(job, resolution.config.offload, limits_, *machine_);
  auto input = memory_input(job, around_, resolution, limits);
  count_with(*rows_, job, input);
  const auto misfits = fit_findings(job, input, limits);
  if (!misfits.empty()) return misfits.front().message;
  const plan::MemoryModel model = plan::memory_model(input);
  const auto& config = resolution.config;
  const auto steps = static_cast<double>(config.gradient_accumulation_steps);
  option.candidate = candidate;
  option.candidate.micro_batch = config.micro_batch_size;
  option.candidate.accumulation = config.gradient_accumulation_steps;
  option.tokens = tokens_per_row_ * static_cast<double>(config.train_batch_size);
  const auto parameters = static_cast<double>(model.parameters);
  option.counts = {
      .products = option.tokens / job.world_size() * parameters,
      .weights = steps * parameters,
      .wire_bytes = static_cast<double>(model.wire.gradient_bytes + model.wire.parameter_bytes),
      .actions = steps * 2 * static_cast<double>(input.model.num_layers + 2) +
                 static_cast<double>(model.gathers)};
  return {};
}

void TuneSpace::add_group(int stage, bool offload, const tune::BatchRule& rule,
                          const std::vector<int64_t>& sizes) {
  const auto candidate = [&](int64_t size) {
    return tune::Candidate{.stage = stage,
                           .micro_batch = size,
                           .accumulation = *tune::accumulation_of(size, rule),
                           .offload = offload};
  };
  tune::Option option;
  const size_t fitting = tune::count_that_fit(
      sizes, [&](int64_t size) { return judge(candidate(size), option).empty(); });
  tune::Group group;
  for (size_t i = 0; i < fitting; ++i)
    if (judge(candidate(sizes[i]), option).empty()) group.push_back(option);
  if (fitting < sizes.size())
    pruned_.push_back(tune::name_of(candidate(sizes[fitting])) + ": " +
                      judge(candidate(sizes[fitting]), option));
  if (!group.empty()) groups_.push_back(std::move(group));
}

std::vector<tune::Group> TuneSpace::settings_around(const tune::Candidate& best) const {
  std::vector<tune::Group> groups;
  for (const json& settings : tune::settings_of(best.stage, static_cast<int64_t>(parameters_))) {
    tune::Candidate candidate = best;
    candidate.given = false;
    candidate.settings = settings;
    tune::Option option;
    if (judge(candidate, option).empty()) groups.push_back({option});
  }
  return groups;
}

Result<TuneSpace> TuneSpace::make(jobspec::Job job, dsconfig::Autotuning settings, TuneScope scope,
                                  std::vector<int64_t> micro_batches, GivenLimits given,
                                  const Machine& machine) {
  if (job.ds_config.contains(json::json_pointer("/elasticity/enabled")) &&
      job.ds_config["elasticity"]["enabled"] == true)
    return bad_input("elasticity decides the batch, and a search would change it", job.source,
                     "set elasticity.enabled to false");
  TuneSpace space;
  space.job_ = std::move(job);
  space.settings_ = std::move(settings);
  space.limits_ = given;
  space.machine_ = &machine;
  space.around_ = look_around(space.job_);
  for (const auto& finding : space.around_.findings)
    if (finding.severity != dsconfig::Finding::Severity::Warning)
      return bad_input(finding.message, space.job_.source, finding.hint);
  space.job_.training.model_name_or_path = space.around_.model_directory;
  const auto resolution = jobspec::resolve(space.job_, space.around_.facts);
  if (!resolution.runnable())
    return bad_input(refusal(resolution), space.job_.source, "`dsj validate` says more");
  if (resolution.config.sequence_parallel_size > 1)
    return bad_input("sequence_parallel_size: a search does not count ranks that share rows",
                     space.job_.source, "leave it out");
  DSJ_TRY(space.rows_, measure_rows(space.job_, *space.around_.model, *space.around_.data));
  space.tokens_per_row_ = mean_tokens(*space.rows_);
  const auto input = memory_input(space.job_, space.around_, resolution, {});
  space.parameters_ = static_cast<double>(plan::memory_model(input).parameters);
  const auto& config = resolution.config;
  space.given_.candidate = {.given = true,
                            .stage = config.zero.stage,
                            .micro_batch = config.micro_batch_size,
                            .accumulation = config.gradient_accumulation_steps};
  const bool offloads = config.offload.optimizer.device != dsconfig::OffloadDevice::None;
  if (const std::string why = space.judge(space.given_.candidate, space.given_); !why.empty())
    space.pruned_.push_back("as_given: " + why);
  const tune::BatchRule rule{.world = space.job_.world_size(),
                             .micro_batch = config.micro_batch_size,
                             .accumulation = config.gradient_accumulation_steps,
                             .keep = scope.keep_batch,
                             .least = space.settings_.min_train_batch_size,
                             .most = space.settings_.max_train_batch_size};
  const int64_t least = space.settings_.min_micro_batch, most = space.settings_.max_micro_batch;
  std::vector<int64_t> sizes = micro_batches;
  std::erase_if(sizes, [&](int64_t size) {
    return size < least || size > most || !tune::accumulation_of(size, rule);
  });
  if (micro_batches.empty())
    sizes = tune::ladder(rule, space.settings_.micro_batch_sizes, least, most);
  for (const int stage : scope.stages)
    for (const bool offload : {false, true})
      if (!offload || (scope.offload && stage > 0 && !offloads))
        space.add_group(stage, offload, rule, sizes);
  return space;
}

}  // namespace dsj::cli

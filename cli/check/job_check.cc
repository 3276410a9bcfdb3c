#include "cli/check/job_check.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "cli/check/measured_rows.h"
#include "cli/check/run_lock.h"
#include "cli/check/run_program.h"
#include "common/files/posix_files.h"
#include "engine/data/batches/clusters.h"
#include "engine/weights/output_place.h"
#include "job/dsconfig/keys/metric_curriculum.h"
#include "job/dsconfig/resolve.h"
#include "job/plan/muon_plan.h"
#include "job/plan/one_bit_plan.h"
#include "job/plan/row_cut_plan.h"
#include "job/plan/row_plan.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using dsconfig::Finding;
using jobspec::Job;
using Severity = Finding::Severity;
using Findings = std::vector<Finding>;

void append(Findings& to, Findings more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

/// Checks the run's output directory.
Findings output_findings(const Job& job) {
  const auto error = [](std::string message, std::string hint = {}) {
    return Findings{
        {Severity::Error, "spec.training.outputDir", std::move(message), std::move(hint)}};
  };
  const std::string& output = job.training.output_dir;
  if (output.empty())
    return error("no output directory",
                 "name one: spec.training.outputDir, or --output_dir of a torchrun line");
  std::error_code ignored;
  fs::path path = output;
  if (fs::exists(path, ignored) && !fs::is_directory(path, ignored))
    return error("the output directory is a file: " + output);
  while (!fs::exists(path, ignored) && path.has_parent_path() && path != path.parent_path())
    path = path.parent_path();
  if (!fs::is_directory(path, ignored)) return error(path.string() + " is not a directory");
  if (access(path.c_str(), W_OK | X_OK) != 0)
    return error("cannot write in " + path.string() + ": " + std::strerror(errno));
  return {};
}

/// Checks what the run would overwrite. `model`: the directory of a hub id, if it was found.
Findings endangered_findings(const Job& job, const std::string& model) {
  PosixFiles files;
  auto reads = weights::reads_of(job.training);
  for (auto& read : reads) {
    if (read.key == "modelNameOrPath" && !model.empty()) read.path = model;
    read.key = "spec.training." + read.key;
  }
  if (!job.ds_config_inline && !job.ds_config_map && !job.ds_config_source.empty())
    reads.push_back({"spec.deepspeed.configFrom.file", job.ds_config_source});
  for (const auto& metric : dsconfig::metric_curricula(job.ds_config))
    for (const auto& prefix : {metric.index_to_sample, metric.index_to_metric})
      if (!prefix.empty()) reads.push_back({"spec.deepspeed.config", prefix + ".bin"});
  Findings findings;
  for (const auto& one : weights::endangered(files, weights::SystemPlaces(), job.training, reads))
    findings.push_back({Severity::Error,
                        one.key == "outputDir" ? "spec.training.outputDir" : one.key, one.message,
                        one.hint});
  return findings;
}

/// Checks the files of a curriculum by metrics. If the rows are known, too, the files are read
/// as by a run.
Findings metric_findings(const Job& job, FilesAre files, const JobCheck& check) {
  const auto metrics = dsconfig::metric_curricula(job.ds_config);
  if (metrics.empty() || files == FilesAre::InContainers) return {};
  const Severity severity = files == FilesAre::Here ? Severity::Error : Severity::Warning;
  Findings findings;
  for (const auto& metric : metrics)
    for (const auto& prefix : {metric.index_to_sample, metric.index_to_metric})
      for (const char* end : {".idx", ".bin"})
        if (!prefix.empty() && access((prefix + end).c_str(), R_OK) != 0)
          findings.push_back(
              {severity, "spec.training.dataPath",
               prefix + end + ": cannot read the metric of the rows: " + std::strerror(errno),
               "`dsj analyze DATA` makes it"});
  const int64_t steps = check.resolution.config.total_steps;
  if (!findings.empty() || !check.around.data || steps == 0) return findings;
  std::vector<data::MetricFiles> named;
  for (const auto& metric : metrics) named.push_back(data::metric_files(metric, steps));
  PosixFiles disk;
  const int64_t rows = check.around.data->rows->rows();
  const auto read = data::read_clusters(disk, named, rows, held_out_rows(rows, job.training));
  if (read) return {};
  const Error& error = read.error();
  return {{severity, "spec.training.dataPath",
           error.where.empty() ? error.message : error.where + ": " + error.message, error.hint}};
}

/// Checks whether the job fits. Rows are measured only if the job would not fit with all rows
/// at the maximum length.
void check_fit(const Job& job, const Machine& machine, const CheckOptions& options,
               JobCheck& check) {
  check.limits = limits_of(job, check.resolution.config.offload, options.given, machine);
  if (options.device && !options.given.device_memory) check.limits.device = *options.device;
  check.memory = memory_input(job, check.around, check.resolution, check.limits);
  const auto units = layout::units_of(check.memory->model, check.memory->lora);
  for (const auto& check_optimizer : {plan::check_muon, plan::check_one_bit})
    if (const Status met = check_optimizer(units, check.memory->config); !met)
      check.findings.push_back(
          {Severity::Error, met.error().where, met.error().message, met.error().hint});
  for (const auto& check_rows : {plan::check_row_cut, plan::check_left_out})
    if (const Status met = check_rows(check.memory->model, check.memory->config); !met)
      check.findings.push_back(
          {Severity::Error, met.error().where, met.error().message, met.error().hint});
  check.memory->native_products |= options.native_products;
  auto misfits = fit_findings(job, *check.memory, check.limits);
  if (!misfits.empty() && check.around.data && !check.around.rows)
    if (auto measured = measure_rows(job, *check.around.model, *check.around.data))
      check.around.rows = std::move(*measured);
  if (!misfits.empty() && check.around.rows) {
    auto input = *check.memory;
    count_with(*check.around.rows, job, input);
    misfits = fit_findings(job, input, check.limits);
  }
  append(check.findings, std::move(misfits));
}

/// Warns of behaviour that a user may not expect.
Findings run_warnings(const Job& job, const JobCheck& check) {
  Findings findings;
  const auto snapshot = snapshot_of(job, *check.memory, check.limits);
  if (!snapshot.fits)
    findings.push_back({Severity::Warning, "spec",
                        "the steps wait while a checkpoint is written: a copy of " +
                            plan::show_bytes(snapshot.bytes) + " per rank does not fit into " +
                            check.limits.host.from,
                        "more memory, or a higher zero_optimization.stage"});
  const auto units = layout::units_of(check.memory->model, check.memory->lora);
  if (const auto why = plan::dense_because(units, check.resolution.config); !why.empty())
    findings.push_back({Severity::Warning, "sparse_gradients", why, "remove it"});
  return findings;
}

/// Whether this machine has the GPU that `device: cuda` requires, by the rules of
/// engine/cuda/choice.h. Not checked for a plan for another GPU, or a job for another machine.
Findings device_findings(const Job& job, const CheckOptions& options, const Machine& machine) {
  const bool elsewhere = options.files == FilesAre::InContainers || options.device;
  if (job.training.device != "cuda" || elsewhere) return {};
  const std::string lacking = machine.lacking_gpu();
  if (lacking.empty()) return {};
  const bool here = options.files == FilesAre::Here;
  return {{here ? Severity::Error : Severity::Warning, "spec.training.device",
           "the job asks for GPUs, and " + lacking,
           "run it where the driver shows a GPU; to train on the CPU, set training.device to cpu "
           "(--device cpu)"}};
}

Findings program_findings(const Job& job) {
  const auto program = user_program(job, run_directory(job.training.output_dir));
  if (program) return {};
  const Error& error = program.error();
  return {{Severity::Error, "spec.workers.template",
           error.where.empty() ? error.message : error.where + ": " + error.message, error.hint}};
}

}  // namespace

bool only_warnings(const std::vector<Finding>& findings) {
  return std::ranges::all_of(findings,
                             [](const auto& one) { return one.severity == Severity::Warning; });
}

bool JobCheck::passes() const {
  return only_warnings(findings);
}

void put_in_order(const Job& job, std::vector<Finding>& findings) {
  std::vector<Finding> all;
  for (Finding& one : findings) {
    const auto same = [&](const Finding& other) {
      return std::tie(one.severity, one.path, one.message, one.line, one.column) ==
             std::tie(other.severity, other.path, other.message, other.line, other.column);
    };
    if (std::ranges::none_of(all, same)) all.push_back(std::move(one));
  }
  std::ranges::stable_sort(all, {}, [&](const Finding& one) {
    const jobspec::FindingPlace place = jobspec::place_of(job, one);
    return std::tuple(place.file != job.source, one.line == 0 ? INT_MAX : one.line, one.column);
  });
  findings = std::move(all);
}

JobCheck check_job(const Job& job, const CheckOptions& options, const Machine& machine) {
  JobCheck check{.around = look_around(job, options.files)};
  const bool here = options.files == FilesAre::Here;
  if (here) append(check.findings, output_findings(job));
  if (here && job.runs_user_program())
    append(check.findings, program_findings(job));
  else if (here)
    append(check.findings, endangered_findings(job, check.around.model_directory));
  if (job.ds_config_map)  // a ConfigMap can be read only in the cluster
    check.resolution.findings = job.findings;
  else
    check.resolution = jobspec::resolve(job, check.around.facts);
  const bool decided = check.resolution.ok() && !job.ds_config_map;
  if (decided && !job.runs_user_program()) {
    append(check.findings, device_findings(job, options, machine));
    append(check.findings, metric_findings(job, options.files, check));
    if (check.around.model) {
      check_fit(job, machine, options, check);
      append(check.findings, run_warnings(job, check));
    }
    if (here && !check.resolution.complete && check.around.data)
      check.findings.push_back({Severity::Error, "spec.training.maxSteps",
                                "the number of steps is not known", "give maxSteps"});
  }
  dsconfig::locate(check.findings, job.positions);
  append(check.findings, check.around.findings);
  append(check.findings, check.resolution.findings);
  put_in_order(job, check.findings);
  return check;
}

int report_findings(const char* verb, const Job& job, const std::vector<Finding>& findings) {
  for (const Finding& finding : findings)
    std::fprintf(stderr, "%s\n", jobspec::to_line(job, finding).c_str());
  const auto problems = std::ranges::count_if(
      findings, [](const auto& one) { return one.severity != Severity::Warning; });
  if (problems == 0) return 0;
  std::fprintf(stderr, "dsj %s: %ld problem%s; nothing was started\n", verb,
               static_cast<long>(problems), problems == 1 ? "" : "s");
  return 1;
}

}  // namespace dsj::cli

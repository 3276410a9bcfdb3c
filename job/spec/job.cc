#include "job/spec/job.h"

#include <algorithm>
#include <filesystem>

#include "job/spec/argument_names.h"
#include "job/spec/elastic.h"
#include "job/spec/yaml.h"

namespace dsj::jobspec {
namespace {

using dsconfig::Finding;
using nlohmann::json;

constexpr char kConfigPath[] = "spec.deepspeed.config";

/// Whether the finding concerns the job and not a key of its ds_config.
bool is_of_job(const Finding& finding) {
  return finding.path.starts_with("spec") || finding.path.starts_with("metadata") ||
         finding.path.starts_with("--") || finding.path == "apiVersion" || finding.path == "kind";
}

std::string shown(const FindingPlace& place) {
  if (place.line == 0) return place.file;
  return place.file + ":" + std::to_string(place.line) + ":" + std::to_string(place.column);
}

std::string directory_of(const std::string& path) {
  return std::filesystem::absolute(path).parent_path().string();
}

}  // namespace

/// Turns the first finding that is an error into an Error.
static Result<Job> first_error_or(Result<Job> job) {
  if (!job) return job;
  for (const Finding& finding : job->findings) {
    if (finding.severity != Finding::Severity::Error) continue;
    const FindingPlace place = place_of(*job, finding);
    std::string where = shown(place);
    if (!place.name.empty()) where += ": " + place.name;
    return bad_input(finding.message, where, finding.hint);
  }
  return job;
}

Result<Job> load_job_yaml(const std::string& path, const std::vector<std::string>& overrides) {
  DSJ_TRY(const dsconfig::Document manifest, read_yaml(path, Dialect::Core, kKind));
  return first_error_or(read_manifest(manifest, directory_of(path), overrides));
}

Result<Job> parse_job_yaml(const std::string& text, const std::string& path,
                           const std::vector<std::string>& overrides) {
  DSJ_TRY(const dsconfig::Document manifest, parse_yaml(text, path, Dialect::Core, kKind));
  return first_error_or(read_manifest(manifest, directory_of(path), overrides));
}

namespace {

dsconfig::Resolution resolve_at(const Job& job, int64_t world, dsconfig::Facts facts) {
  facts.world_size = world;
  if (job.runs_user_program() && !job.has_ds_config()) return {.findings = job.findings};
  dsconfig::Resolution resolution = dsconfig::resolve(job.ds_config, job.training, facts);
  dsconfig::locate(resolution.findings, job.ds_positions);
  for (Finding& finding : resolution.findings) {
    if (job.runs_user_program() && finding.severity == Finding::Severity::Unsupported) {
      finding.severity = Finding::Severity::Warning;
      finding.message += " (by this engine; the job's own program decides)";
    }
    const bool argument = finding.path.starts_with("training.");
    if (argument)
      finding.path = "spec." + finding.path;
    else if (job.ds_config_inline)
      finding.path = finding.path.empty() ? kConfigPath : kConfigPath + ("." + finding.path);
    if (const auto other = job.positions.find("spec." + finding.other);
        other != job.positions.end()) {
      const auto& key = other->second.key;
      finding.message += " (" + job.source + ":" + std::to_string(key.line) + ":" +
                         std::to_string(key.column) + ")";
    }
    if (argument || job.ds_config_inline) {
      std::vector<Finding> one = {finding};
      dsconfig::locate(one, job.positions);
      finding = one[0];
    }
  }
  resolution.findings.insert(resolution.findings.begin(), job.findings.begin(), job.findings.end());
  resolution.complete = resolution.complete && resolution.ok();
  return resolution;
}

}  // namespace

dsconfig::Resolution resolve(const Job& job, dsconfig::Facts facts) {
  if (!job.policies.elastic || job.runs_user_program())
    return resolve_at(job, job.world_size(), facts);
  ElasticSizes sizes = elastic_sizes(
      {*job.policies.elastic, job.replicas, job.slots_per_worker, job.ds_config, job.training});
  const auto world = [&](int workers) { return int64_t{workers} * job.slots_per_worker; };
  const int largest = largest_size(sizes.workers, job.replicas);
  auto resolution = resolve_at(job, world(largest > 0 ? largest : job.replicas), facts);
  if (largest > 0 && sizes.workers.front() < largest && resolution.runnable()) {
    auto smallest = resolve_at(job, world(sizes.workers.front()), facts);
    if (!smallest.runnable()) resolution = std::move(smallest);
  }
  dsconfig::locate(sizes.findings, job.positions);
  resolution.findings.insert(resolution.findings.begin(), sizes.findings.begin(),
                             sizes.findings.end());
  resolution.complete = resolution.complete && resolution.ok();
  return resolution;
}

FindingPlace place_of(const Job& job, const Finding& finding) {
  const bool own = is_of_job(finding) || job.ds_config_source.empty();
  FindingPlace place{own ? job.source : job.ds_config_source, finding.line, finding.column,
                     finding.path};
  if (!own || job.source != kCommandLine) return place;
  if (const auto written = job.written.find(finding.path); written != job.written.end())
    place.name = written->second;
  else if (const std::string argument = argument_of(finding.path); !argument.empty())
    place.name = argument;
  return place;
}

std::string to_line(const Job& job, const Finding& finding) {
  static constexpr const char* kNames[] = {"error", "unsupported", "warning"};
  const FindingPlace place = place_of(job, finding);
  std::string line = shown(place) + ": " + kNames[static_cast<int>(finding.severity)] + ": ";
  if (!place.name.empty()) line += place.name + ": ";
  std::string text = finding.message;
  if (!finding.hint.empty()) text += " (" + finding.hint + ")";
  return line + (job.source == kCommandLine ? in_arguments(text) : text);
}

JobFile to_job_file(const Job& job, int64_t attempt, int world_size) {
  return {.name = job.name,
          .attempt = attempt,
          .world_size = world_size,
          .output_dir = job.training.output_dir,
          .training = job.training,
          .ds_config = job.ds_config,
          .ds_config_source = job.ds_config_source};
}

json to_json(const Job& job) {
  json workers = {{"replicas", job.replicas}, {"slotsPerWorker", job.slots_per_worker}};
  if (job.min_replicas) workers["minReplicas"] = *job.min_replicas;
  if (job.max_replicas) workers["maxReplicas"] = *job.max_replicas;
  if (!job.worker_template.is_null()) workers["template"] = job.worker_template;
  return {{"apiVersion", kApiVersion},
          {"kind", kKind},
          {"metadata", {{"name", job.name}}},
          {"spec",
           {{"deepspeed", {{"config", job.ds_config}}},
            {"training", to_json(job.training)},
            {"workers", workers},
            {"launcher", job.launcher},
            {"restartPolicy", job.restart_policy},
            {"backoffLimit", job.backoff_limit}}}};
}

}  // namespace dsj::jobspec

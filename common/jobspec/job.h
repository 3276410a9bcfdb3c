// A DeepSpeedJob as the user wrote it, from a YAML manifest or from the torchrun line of
// DeepSpeed's users: one struct for both, so that `dsj run`, `dsj plan` and `dsj validate` do not
// care which. Reads files; starts nothing; does not look into ds_config (dsconfig/check.h,
// resolve.h do). Uses yaml-cpp, in yaml.cc only.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/dsconfig/reader.h"
#include "common/dsconfig/resolve.h"
#include "common/job_file.h"
#include "common/result.h"
#include "common/training_args.h"

namespace dsj::jobspec {

inline constexpr char kApiVersion[] = "training.dsj.dev/v1alpha1";
inline constexpr char kKind[] = "DeepSpeedJob";

struct Job {
  std::string name;    ///< metadata.name; a command line's is made from the output directory
  std::string source;  ///< the manifest's path, or "command line"

  TrainingArgs training;  ///< spec.training; paths absolute

  nlohmann::json ds_config;           ///< plain JSON, as the user wrote it
  dsconfig::Positions ds_positions;   ///< of ds_config's keys, in ds_config_source
  std::string ds_config_source;       ///< the manifest (inline) or the file it came from
  std::string ds_config_path_prefix;  ///< "spec.deepspeed.config" when inline, else empty

  int replicas = 1;          ///< spec.workers.replicas: agents
  int slots_per_worker = 1;  ///< spec.workers.slotsPerWorker: ranks per agent
  std::optional<int> min_replicas, max_replicas;
  nlohmann::json worker_template;            ///< spec.workers.template, kept untouched
  std::string launcher = "Native";           ///< Native; Command is refused in this version
  std::string restart_policy = "OnFailure";  ///< OnFailure, Never
  int backoff_limit = 3;  ///< attempts after the first without a newer checkpoint

  /// What was accepted without effect, one line each with its reason ("reportTo none: ...").
  std::vector<dsconfig::Finding> findings;

  int world_size() const { return replicas * slots_per_worker; }
};

/// Reads a manifest. Relative paths in it (modelNameOrPath, dataPath, outputDir, configFrom.file)
/// are relative to its directory. Errors carry FILE:LINE:COLUMN and the field's path; an unknown
/// field is an error with "did you mean".
Result<Job> load_job_yaml(const std::string& path, const std::vector<std::string>& overrides = {});
/// The same from memory; `path` is used for messages and as the base of relative paths.
Result<Job> parse_job_yaml(const std::string& text, const std::string& path,
                           const std::vector<std::string>& overrides = {});

/// The torchrun line: `--nproc_per_node=2 --deepspeed ds_config.json --model_name_or_path DIR ...`.
/// Dashes or underscores, "=" or a space, flags alone mean true. Relative paths are relative to the
/// current directory. Every argument is used, noted in Job::findings, or refused with its reason.
/// `--set` pairs are `overrides`, not part of `args`.
Result<Job> job_from_arguments(const std::vector<std::string>& args,
                               const std::vector<std::string>& overrides = {});

/// ds_config of the job in the world it asks for (resolve.h), findings with their positions, the
/// job's own findings in front.
dsconfig::Resolution resolve(const Job& job, const dsconfig::Facts& facts);

/// What the agent writes for one attempt. `output_dir` absolute.
JobFile to_job_file(const Job& job, int64_t attempt, int world_size);

/// The manifest this job would have been: `apiVersion`, `kind`, `metadata`, `spec`.
nlohmann::json to_json(const Job& job);

}  // namespace dsj::jobspec

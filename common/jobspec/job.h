// A DeepSpeedJob as the user wrote it, from a YAML manifest or from the torchrun line of
// DeepSpeed's users: one struct for both, so that `dsj run`, `dsj plan` and `dsj validate` do not
// care which. Reads files; starts nothing; does not look into ds_config (dsconfig/check.h,
// resolve.h do).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/dsconfig/reader.h"
#include "common/dsconfig/resolve.h"
#include "common/job_file.h"
#include "common/jobspec/policies.h"
#include "common/result.h"
#include "common/training_args.h"

namespace dsj::jobspec {

inline constexpr char kApiVersion[] = "training.dsj.dev/v1alpha1";
inline constexpr char kKind[] = "DeepSpeedJob";

/// Where a job runs decides what its fields may say: files of this machine, or paths in a
/// container.
enum class Place { Local, Cluster };

struct ConfigMapKey {
  std::string name, key;
};

struct Job {
  std::string name;               ///< metadata.name; a command line's is made from --output_dir
  std::string source;             ///< the manifest's path, or "command line"
  dsconfig::Positions positions;  ///< of the manifest's fields; empty for a command line

  TrainingArgs training;  ///< spec.training; paths absolute (a hub id stays)

  nlohmann::json ds_config = nlohmann::json::object();  ///< plain JSON, as the user wrote it
  dsconfig::Positions ds_positions;                     ///< of its keys, in ds_config_source
  std::string ds_config_source;  ///< the manifest when inline, else the file it came from
  bool ds_config_inline = false;
  std::optional<ConfigMapKey> ds_config_map;  ///< Place::Cluster: fill it in by set_ds_config()

  int replicas = 1;          ///< spec.workers.replicas: agents
  int slots_per_worker = 1;  ///< spec.workers.slotsPerWorker: ranks per agent
  std::optional<int> min_replicas, max_replicas;
  nlohmann::json worker_template;            ///< spec.workers.template without its nulls; null: none
  std::string launcher = "Native";           ///< Native, Command (user_program.h)
  std::string restart_policy = "OnFailure";  ///< OnFailure, Never
  int backoff_limit = 3;  ///< attempts after the first without a newer checkpoint
  Policies policies;

  /// What is wrong with the fields (Error: only from read_manifest), known but not built
  /// (Unsupported: must stop a run with exit code 2), or without effect (Warning: print it).
  std::vector<dsconfig::Finding> findings;

  int world_size() const { return replicas * slots_per_worker; }
  bool runs_user_program() const { return launcher == "Command"; }
  /// Always, but for a program of the user's own that wants none.
  bool has_ds_config() const {
    return ds_config_inline || ds_config_map || !ds_config_source.empty();
  }
};

/// Reads a manifest. Relative paths in it (modelNameOrPath, dataPath, outputDir, configFrom.file)
/// are relative to its directory. `overrides` are "spec.path=value" (YAML values), applied before
/// anything is checked. Errors carry FILE:LINE:COLUMN and the field's path; an unknown field is an
/// error with "did you mean".
Result<Job> load_job_yaml(const std::string& path, const std::vector<std::string>& overrides = {});
/// The same from memory; `path` is used for messages and as the base of relative paths.
Result<Job> parse_job_yaml(const std::string& text, const std::string& path,
                           const std::vector<std::string>& overrides = {});

/// The torchrun line: `--nproc_per_node=2 --deepspeed ds_config.json --model_name_or_path DIR ...`.
/// Dashes or underscores, "=" or a space, a switch alone means true. Relative paths are relative to
/// the current directory. Every argument is used, noted in Job::findings, or refused with its
/// reason. `args` holds no verb, no --output and no --set.
Result<Job> job_from_arguments(const std::vector<std::string>& args,
                               const std::vector<std::string>& overrides = {});

/// The manifest that such a line stands for, its paths as written, nothing read. With `lenient`
/// what cannot be carried over (a word, an unknown argument, a value) is an Unsupported finding
/// whose path is the argument, the last of a repeated argument counts as with argparse, and a line
/// without a ds_config is a manifest without one.
struct ArgumentsManifest {
  nlohmann::json manifest;
  std::vector<dsconfig::Finding> findings;
};
Result<ArgumentsManifest> manifest_from_arguments(const std::vector<std::string>& args,
                                                  bool lenient);

/// Every finding instead of the first error: a Job as far as it could be read. Fails only when
/// `manifest` is not an object. `base` is the directory of relative paths.
Result<Job> read_manifest(const dsconfig::Document& manifest, const std::string& base,
                          const std::vector<std::string>& overrides = {});
/// The object of an API server, as the operator takes it: paths are a container's, absolute; a
/// ConfigMap may hold the ds_config, and the policies have effect.
Result<Job> read_cluster_manifest(const nlohmann::json& object);
/// ds_config out of the text of a ConfigMap's key. Errors carry SOURCE:LINE:COLUMN.
Status set_ds_config(Job& job, const std::string& text, const std::string& source);

/// ds_config of the job in the world it asks for (resolve.h). Findings carry the manifest's paths
/// and positions; the job's own come first. What only this engine cannot do is a warning where the
/// program is the user's own.
dsconfig::Resolution resolve(const Job& job, dsconfig::Facts facts);

/// One finding as a line: "job.yaml:12:5: error: spec.training.x: message (hint)".
std::string to_line(const Job& job, const dsconfig::Finding& finding);

/// What the agent writes for one attempt; `output_dir` and the rest of the arguments as in the job.
JobFile to_job_file(const Job& job, int64_t attempt, int world_size);

/// The manifest this job would have been: apiVersion, kind, metadata, spec, config inline.
nlohmann::json to_json(const Job& job);

}  // namespace dsj::jobspec

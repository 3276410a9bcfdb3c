// A DeepSpeedJob as the user wrote it, from a YAML manifest or from a torchrun line. Both give the
// same struct, so `dsj run`, `dsj plan` and `dsj validate` treat them alike. Reads files and starts
// nothing; does not check ds_config (dsconfig/read/check.h and resolve.h do).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "job/dsconfig/read/reader.h"
#include "job/dsconfig/resolve.h"
#include "job/job_file.h"
#include "job/spec/policies.h"
#include "job/spec/sharding.h"
#include "job/training_args.h"

namespace dsj::jobspec {

inline constexpr char kApiVersion[] = "training.dsj.dev/v1alpha1";
inline constexpr char kKind[] = "DeepSpeedJob";

/// Where a job runs. It determines whether paths are files of this machine or paths in a
/// container.
enum class Place { Local, Cluster };

struct ConfigMapKey {
  std::string name, key;
};

struct Job {
  std::string name;               ///< metadata.name; for a command line, from --output_dir
  std::string source;             ///< the manifest's path, or "command line"
  dsconfig::Positions positions;  ///< of the manifest's fields; empty for a command line
  /// For a command line: the field's path → the argument as written ("--model_max_length").
  std::map<std::string, std::string> written;

  TrainingArgs training;  ///< spec.training; paths are absolute (a hub id is unchanged)

  nlohmann::json ds_config = nlohmann::json::object();  ///< plain JSON, as the user wrote it
  dsconfig::Positions ds_positions;                     ///< of ds_config's keys
  std::string ds_config_source;                         ///< the manifest if inline, else the file
  bool ds_config_inline = false;
  std::optional<ConfigMapKey> ds_config_map;  ///< Place::Cluster: call set_ds_config()

  int replicas = 1;          ///< spec.workers.replicas: agents
  int slots_per_worker = 1;  ///< spec.workers.slotsPerWorker: ranks per agent
  std::optional<int> min_replicas, max_replicas;
  nlohmann::json worker_template;            ///< spec.workers.template without nulls, or null
  std::string launcher = "Native";           ///< Native, Command (user_program.h)
  std::string restart_policy = "OnFailure";  ///< OnFailure, Never
  int backoff_limit = 3;                     ///< restarts in a row without a newer checkpoint
  Policies policies;

  /// Fields that are wrong (Error: only from read_manifest), known but not built (Unsupported: a
  /// run must refuse with exit code 2), or without effect (Warning: print it).
  std::vector<dsconfig::Finding> findings;

  int world_size() const { return replicas * slots_per_worker; }
  bool runs_user_program() const { return launcher == "Command"; }
  /// False only for a user's own program without a ds_config.
  bool has_ds_config() const {
    return ds_config_inline || ds_config_map || !ds_config_source.empty();
  }
};

/// Reads a manifest. Relative paths in it (modelNameOrPath, dataPath, outputDir, configFrom.file)
/// are relative to its directory. `overrides` are "spec.path=value" (YAML values), applied before
/// any check. Errors: BadInput with FILE:LINE:COLUMN and the field's path; for an unknown field
/// with "did you mean".
Result<Job> load_job_yaml(const std::string& path, const std::vector<std::string>& overrides = {});
/// The same from memory. `path` is shown in messages and is the base of relative paths.
Result<Job> parse_job_yaml(const std::string& text, const std::string& path,
                           const std::vector<std::string>& overrides = {});

/// Whether the word is a program that starts Python ranks: "torchrun", "/usr/bin/deepspeed".
bool is_launcher(const std::string& word);
/// Whether a torchrun line may have this argument, with or without effect. `word`: "--learning-rate".
bool is_line_argument(const std::string& word);
/// Reads a torchrun line: `--nproc_per_node=2 --deepspeed ds_config.json --model_name_or_path DIR
/// ...`. Dashes or underscores, "=" or a space; a switch without a value is true. Relative paths
/// are relative to the current directory. Every argument is used, reported in Job::findings, or
/// refused with a reason. `args` has no verb, no --output and no --set.
Result<Job> job_from_arguments(const std::vector<std::string>& args,
                               const std::vector<std::string>& overrides = {});

/// The manifest equal to such a line, with paths as written; reads no file. With `lenient`,
/// anything that cannot be converted (a word, an unknown argument, a value) is an Unsupported
/// finding whose path is the argument; the last of repeated arguments counts, as in argparse; and a
/// line without a ds_config gives a manifest without one. Without `lenient`, such a line trains as
/// --fsdp says or with data parallelism, which is a finding.
struct ArgumentsManifest {
  nlohmann::json manifest;
  std::vector<dsconfig::Finding> findings;
  std::map<std::string, std::string> written;  ///< as Job::written
  std::optional<Sharding> fsdp;                ///< for a lenient line with --fsdp
};
Result<ArgumentsManifest> manifest_from_arguments(const std::vector<std::string>& args,
                                                  bool lenient);

/// A Job as far as it can be read, with every finding instead of the first error. Errors: only if
/// `manifest` is not an object. `base`: the directory of relative paths.
Result<Job> read_manifest(const dsconfig::Document& manifest, const std::string& base,
                          const std::vector<std::string>& overrides = {},
                          Place place = Place::Local);
/// Reads an API server's object for the operator: paths are absolute, in a container; a ConfigMap
/// may contain the ds_config; the policies act. `read_only_root`: whether a worker's root file system
/// is read-only if its template does not set it; nullopt: unknown, like mounts that the cluster adds.
Result<Job> read_cluster_manifest(const nlohmann::json& object,
                                  std::optional<bool> read_only_root = std::nullopt);
/// Reads ds_config from the text of a ConfigMap's key. Errors: BadInput at SOURCE:LINE:COLUMN.
Status set_ds_config(Job& job, const std::string& text, const std::string& source);

/// Resolves the job's ds_config for the job's world size (dsconfig/resolve.h). The job's own
/// findings come first; all have the manifest's paths and positions. For a user's own program,
/// limits of this engine are only warnings.
dsconfig::Resolution resolve(const Job& job, dsconfig::Facts facts);

/// The place of a finding as users know it: a field of the manifest, an argument of the line
/// ("--learning_rate"), a key of the ds_config.
struct FindingPlace {
  std::string file;          ///< "job.yaml", "ds_config.json", "command line"
  int line = 0, column = 0;  ///< 1-based; 0 if unknown
  std::string name;          ///< "spec.training.learningRate", "--learning_rate"; may be empty
};
FindingPlace place_of(const Job& job, const dsconfig::Finding& finding);

/// A finding as one line: "job.yaml:12:5: error: spec.training.x: message (hint)".
std::string to_line(const Job& job, const dsconfig::Finding& finding);

/// The job.json of one attempt.
JobFile to_job_file(const Job& job, int64_t attempt, int world_size);

/// The job as a manifest: apiVersion, kind, metadata, spec, with ds_config inline.
nlohmann::json to_json(const Job& job);

}  // namespace dsj::jobspec

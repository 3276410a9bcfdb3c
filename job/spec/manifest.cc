// The fields of a DeepSpeedJob manifest, one method per object. Everything wrong becomes a finding.
#include <algorithm>
#include <filesystem>

#include "common/json.h"
#include "common/text.h"
#include "job/spec/field_reader.h"
#include "job/spec/initializers.h"
#include "job/spec/job.h"
#include "job/spec/overrides.h"
#include "job/spec/policies_reader.h"
#include "job/spec/topology_reader.h"
#include "job/spec/user_program.h"

namespace dsj::jobspec {
namespace {

namespace fs = std::filesystem;
using dsconfig::Finding;
using nlohmann::json;
using Severity = Finding::Severity;

constexpr int kMaxRanks = 65'536;
constexpr char kElasticHint[] = "spec.elastic: {minReplicas, maxReplicas} is this operator's";

/// As Kubernetes reads an object: a null member counts as missing.
json without_nulls(json value) {
  if (value.is_object()) {
    for (auto at = value.begin(); at != value.end();)
      at = at->is_null() ? value.erase(at) : std::next(at);
  }
  if (value.is_structured())
    for (json& child : value) child = without_nulls(std::move(child));
  return value;
}

class ManifestReader : private FieldReader {
 public:
  ManifestReader(const std::string& base, Place place, Job& job)
      : FieldReader(job.findings), base_(base), place_(place), job_(job) {}

  void read(const json& manifest, const std::vector<Override>& config_overrides) {
    fields(manifest, "");
    expect_word(manifest, "apiVersion", kApiVersion);
    expect_word(manifest, "kind", kKind);
    if (const json* data = object(manifest, "metadata", "metadata")) metadata(*data);
    const json* spec = object(manifest, "spec", "spec");
    if (spec == nullptr) {
      if (!manifest.contains("spec")) report(Severity::Error, "spec", "a field is missing");
      return;
    }
    fields(*spec, "spec");
    not_built(*spec);
    choice(*spec, "spec", "launcher", {"Native", "Command"}, job_.launcher);
    training(*spec);
    workers(*spec);
    const bool in_cluster = place_ == Place::Cluster;
    read_initializers(*spec, {job_.training, in_part_, in_cluster}, job_.worker_template, *this);
    if (job_.runs_user_program())
      user_program();
    else
      device();
    policies(*spec);
    deepspeed(*spec, config_overrides);
  }

 private:
  void expect_word(const json& object, const char* name, const char* word) {
    const auto found = object.find(name);
    if (found == object.end())
      report(Severity::Error, name, "a field is missing", std::string("add ") + name + ": " + word);
    else if (*found != word)
      report(Severity::Error, name, "found " + shown(*found) + ", expected " + word);
  }

  void count(const json& object, const std::string& path, const char* name, int least, int& field) {
    int64_t value = field;
    if (whole(object, path, name, least, kMaxRanks, value)) field = static_cast<int>(value);
  }

  void metadata(const json& data) {
    fields(data, "metadata");
    const auto name = data.find("name");
    if (name == data.end() || !name->is_string()) {
      report(Severity::Error, "metadata.name", "a name is missing", "add name: my-job");
      return;
    }
    job_.name = name->get<std::string>();
    const std::string& n = job_.name;
    const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
    const bool good = !n.empty() && n.size() <= 40 && is_lower(n[0]) && n.back() != '-' &&
                      std::all_of(n.begin(), n.end(), [&](char c) {
                        return is_lower(c) || (c >= '0' && c <= '9') || c == '-';
                      });
    if (!good)
      report(Severity::Error, "metadata.name",
             "found " + shown(n) + ", expected at most 40 of a-z, 0-9 and -, a letter first");
  }

  void not_built(const json& spec) {
    for (const auto& [name, hint] : {std::pair{"elasticPolicy", kElasticHint},
                                     {"network", "remove it"},
                                     {"model", "remove it"}})
      if (spec.contains(name) && !spec[name].is_null() && !spec[name].empty())
        report(Severity::Unsupported, join("spec", name), "not built in this version", hint);
    if (const json* parallelism = object(spec, "parallelism", "spec.parallelism")) {
      fields(*parallelism, "spec.parallelism");
      for (const auto& [name, value] : parallelism->items())
        if (value != 1)
          report(Severity::Unsupported, join("spec.parallelism", name),
                 shown(value) + ": only data parallelism is built", "write 1, or remove it");
    }
  }

  /// Relative to the manifest's directory. A model that is not there and has no ./ may be a hub id.
  std::string absolute(const std::string& path) const {
    if (path.empty()) return path;
    return fs::absolute(fs::path(base_) / path).lexically_normal().string();
  }
  std::string model_path(const std::string& name) const {
    std::error_code ignored;
    if (place_ == Place::Cluster) return name;
    const std::string path = absolute(name);
    const bool is_path =
        name.starts_with(".") || name.starts_with("/") || fs::exists(path, ignored);
    return is_path ? path : name;
  }

  void training(const json& spec) {
    const std::string path = "spec.training";
    json good = json::object();
    if (const json* object_found = object(spec, "training", path)) {
      for (const auto& [name, value] : object_found->items()) {
        const auto one = training_args_from_json({{name, value}}, path);
        if (one)
          good[name] = value;
        else
          report(Severity::Error, one.error().where, one.error().message, one.error().hint);
      }
    }
    auto args = training_args_from_json(good, path);
    if (!args) {
      report(Severity::Error, args.error().where, args.error().message, args.error().hint);
      return;
    }
    job_.training = std::move(*args);
    TrainingArgs& training = job_.training;
    const bool native = !job_.runs_user_program();
    if (native && training.model_name_or_path.empty())
      report(Severity::Error, path + ".modelNameOrPath", "a field is missing",
             "name a Hugging Face model directory");
    if (native && training.data_path.empty())
      report(Severity::Error, path + ".dataPath", "a field is missing",
             "name an alpaca JSON or JSONL file");
    if (place_ == Place::Cluster) container_paths(path);
    training.model_name_or_path = model_path(training.model_name_or_path);
    if (native || place_ == Place::Local) {
      training.data_path = absolute(training.data_path);
      if (training.eval_data_path) training.eval_data_path = absolute(*training.eval_data_path);
    }
    training.output_dir = absolute(training.output_dir);
    resume(path + ".resumeFromCheckpoint");
  }

  /// A container has no directory of the manifest, and hub ids are not looked up there.
  void container_paths(const std::string& path) {
    const TrainingArgs& training = job_.training;
    auto check = [&](const char* name, const std::string& value) {
      if (!value.empty() && !value.starts_with("/"))
        report(Severity::Error, join(path, name),
               "found " + shown(value) + ", expected an absolute path in the container",
               "mount a volume in spec.workers.template and name a path on it");
    };
    check("outputDir", training.output_dir);
    if (!job_.runs_user_program()) {  // a program of the user's own reads them as it likes
      check("modelNameOrPath", training.model_name_or_path);
      check("dataPath", training.data_path);
      check("evalDataPath", training.eval_data_path.value_or(""));
    }
    if (training.output_dir.empty())
      report(Severity::Error, path + ".outputDir", "a field is missing",
             "name a directory on a volume that outlives the pods");
  }

  void resume(const std::string& path) {
    auto& from = job_.training.resume_from_checkpoint;
    if (!from) return;
    const auto word = text::parse_bool(*from);
    if (word == true) {
      from.reset();
      report(Severity::Warning, path, "no effect: the newest checkpoint is always taken");
    } else if (word == false) {
      from.reset();
      report(Severity::Unsupported, path, "a run always goes on from the checkpoints in outputDir",
             "name an empty outputDir to start over");
    } else {
      from = absolute(*from);
    }
  }

  void workers(const json& spec) {
    const std::string path = "spec.workers";
    const json* found = object(spec, "workers", path);
    if (found == nullptr) return;
    fields(*found, path);
    count(*found, path, "replicas", 1, job_.replicas);
    count(*found, path, "slotsPerWorker", 1, job_.slots_per_worker);
    if (static_cast<int64_t>(job_.replicas) * job_.slots_per_worker > kMaxRanks) {
      report(Severity::Error, path, "more than " + std::to_string(kMaxRanks) + " ranks");
      job_.replicas = job_.slots_per_worker = 1;
    }
    int least = job_.replicas, most = job_.replicas;
    count(*found, path, "minReplicas", 1, least);
    count(*found, path, "maxReplicas", 1, most);
    if (found->contains("minReplicas")) job_.min_replicas = least;
    if (found->contains("maxReplicas")) job_.max_replicas = most;
    if (least > job_.replicas || most < job_.replicas)
      report(Severity::Error, path,
             "minReplicas " + std::to_string(least) + ", replicas " +
                 std::to_string(job_.replicas) + ", maxReplicas " + std::to_string(most) +
                 ": not in this order");
    else if (least != most)
      report(Severity::Unsupported, path, "minReplicas and maxReplicas do not make a job elastic",
             kElasticHint);
    if (const json* ref = object(*found, "templateRef", path + ".templateRef"))
      template_ref(*ref, path + ".templateRef");
    if (const json* pod = object(*found, "template", path + ".template")) {
      job_.worker_template = without_nulls(*pod);
      const RankProgram program = !job_.runs_user_program() ? RankProgram::Engine
                                  : in_part_                ? RankProgram::OwnInPart
                                                            : RankProgram::Own;
      check_template(job_.worker_template, path + ".template", program, *this);
    }
  }

  /// What the template says is not known here: worker_template.h puts it into the spec before the
  /// operator reads it.
  void template_ref(const json& ref, const std::string& path) {
    in_part_ = true;
    fields(ref, path);
    const auto name = ref.find("name");
    if (name == ref.end() || !name->is_string() || name->get<std::string>().empty())
      report(Severity::Error, path + ".name", "a name is missing",
             "kubectl get deepspeedjobtemplates lists them");
    else if (place_ == Place::Local)
      report(Severity::Unsupported, path, "has effect in a cluster only",
             "write what the template says into spec.workers.template");
  }

  /// Workers that ask for GPUs train on GPUs, or not at all.
  void device() {
    const WorkerGpus gpus = worker_gpus(job_.worker_template);
    if (gpus.all() == 0) return;
    auto& device = job_.training.device;
    if (!device) device = "cuda";
    if (device == "cpu")
      report(Severity::Warning, "spec.training.device",
             "cpu, and each worker asks for " + std::to_string(gpus.all()) + " GPUs: they stay idle",
             "remove one of the two");
    else if (job_.slots_per_worker > gpus.seen())
      too_few_gpus(gpus);
  }

  /// Each rank of such a worker would refuse to start.
  void too_few_gpus(const WorkerGpus& gpus) {
    const std::string seen = std::to_string(gpus.seen());
    report(place_ == Place::Cluster ? Severity::Error : Severity::Warning, "spec.workers.slotsPerWorker",
           std::to_string(job_.slots_per_worker) + ", and " +
               (gpus.parts > 0
                    ? "each worker asks for parts of a divided GPU (nvidia.com/mig-*): a process sees one of them"
                    : "each worker asks for " + seen + (gpus.whole == 1 ? " GPU" : " GPUs")) +
               "; each rank needs a GPU of its own",
           "set it to " + seen + " and take more replicas" +
               (gpus.parts > 0 ? "" : ", or ask for as many GPUs as slots"));
  }

  void user_program() {
    const std::string at = "spec.workers.template.spec.containers[worker]";
    const json& container = worker_container(job_.worker_template);
    if (container.is_null() && in_part_) return;
    if (container.is_null()) {
      report(Severity::Error, at, "launcher: Command needs a container with a program",
             "give image, command and args");
      return;
    }
    if (place_ == Place::Cluster) return;
    if (container.contains("envFrom"))
      report(Severity::Unsupported, at + ".envFrom", "has effect in a cluster only", "remove it");
    if (const auto env = container.find("env"); env != container.end() && env->is_array())
      for (const json& variable : *env)
        if (variable.is_object() && variable.contains("valueFrom"))
          report(Severity::Unsupported, at + ".env",
                 variable.value("name", "") + ": valueFrom has effect in a cluster only",
                 "give a value");
    if (container.contains("workingDir"))
      report(Severity::Warning, at + ".workingDir",
             "has effect in a cluster only: the ranks run in the current directory");
  }

  void policies(const json& spec) {
    choice(spec, "spec", "restartPolicy", {"OnFailure", "Never"}, job_.restart_policy);
    count(spec, "spec", "backoffLimit", 0, job_.backoff_limit);
    job_.policies = read_policies(spec, *this);
    scheduling();
    elastic();
    topology(spec);
    if (place_ == Place::Cluster) return;
    for (const char* name :
         {"initializers", "runPolicy", "failurePolicy", "elastic", "liveness", "checkpoint"})
      if (spec.contains(name) && !spec[name].is_null() && !spec[name].empty())
        report(Severity::Unsupported, join("spec", name), "has effect in a cluster only",
               "remove it");
    if (job_.policies.suspend)
      report(Severity::Unsupported, "spec.suspend", "has effect in a cluster only", "remove it");
  }

  void scheduling() {
    const Scheduling& wanted = job_.policies.run.scheduling;
    if (wanted.scheduler == GangScheduler::None) return;
    const std::string path = "spec.runPolicy.schedulingPolicy";
    const bool kueue = wanted.scheduler == GangScheduler::Kueue;
    if (wanted.min_available && *wanted.min_available > job_.replicas)
      report(Severity::Error, path + ".minAvailable",
             std::to_string(*wanted.min_available) + " of " + std::to_string(job_.replicas) +
                 " workers");
    else if (kueue && wanted.min_available && *wanted.min_available < job_.replicas)
      report(Severity::Unsupported, path + ".minAvailable", "Kueue admits all pods or none",
             "remove it");
    const auto at = json::json_pointer("/spec/schedulerName");
    if (!kueue && job_.worker_template.is_object() && job_.worker_template.contains(at))
      report(Severity::Error, "spec.workers.template.spec.schedulerName",
             "schedulingPolicy sets it to volcano", "remove one of the two");
  }

  void topology(const json& spec) {
    const json& workers = json_child(spec, "workers");
    if (!workers.is_object()) return;
    job_.policies.topology = read_topology(workers, *this);
    if (!job_.policies.topology) return;
    if (place_ == Place::Local)
      report(Severity::Unsupported, "spec.workers.topology", "has effect in a cluster only",
             "remove it");
    else
      check_topology(*job_.policies.topology, job_.policies.run.scheduling.scheduler,
                     job_.worker_template, *this);
  }

  /// What elastic_sizes() does not see: it knows the batch alone.
  void elastic() {
    if (!job_.policies.elastic) return;
    const Elastic& bounds = *job_.policies.elastic;
    const std::string path = "spec.elastic";
    if (job_.replicas < bounds.min_replicas || job_.replicas > bounds.max_replicas)
      report(Severity::Error, "spec.workers.replicas",
             std::to_string(job_.replicas) + " is not from elastic.minReplicas " +
                 std::to_string(bounds.min_replicas) + " to maxReplicas " +
                 std::to_string(bounds.max_replicas),
             "replicas is the number of workers that the job is to have");
    if (job_.runs_user_program())
      report(Severity::Unsupported, path,
             "whether a program of your own goes on with another number of ranks is not known here",
             "remove it; `kubectl scale` starts the program anew with other workers");
    switch (job_.policies.run.scheduling.scheduler) {
      case GangScheduler::None:
        return;
      case GangScheduler::Kueue:
        return report(Severity::Unsupported, path,
                      "Kueue admits a pod group whole: it has partial admission for batch Jobs "
                      "alone, and no way for a group to ask for more later",
                      "remove elastic or runPolicy.schedulingPolicy");
      case GangScheduler::Volcano:
        return report(Severity::Unsupported, path,
                      "Volcano gives a pod group all its nodes or none, so nobody sees that fewer "
                      "workers have a place",
                      "remove elastic or runPolicy.schedulingPolicy");
    }
  }

  void deepspeed(const json& spec, const std::vector<Override>& config_overrides) {
    const std::string path = "spec.deepspeed";
    const json* found = object(spec, "deepspeed", path);
    if (found == nullptr && job_.runs_user_program()) return;
    if (found == nullptr) {
      report(Severity::Error, path, "a field is missing",
             "add config: (the ds_config itself) or configFrom: {file: ds_config.json}");
      return;
    }
    fields(*found, path);
    const json* config = object(*found, "config", path + ".config");
    const json* from = object(*found, "configFrom", path + ".configFrom");
    if ((config == nullptr) == (from == nullptr)) {
      report(Severity::Error, path,
             config ? "config and configFrom are both given"
                    : "neither config nor configFrom is given",
             "give exactly one");
      return;
    }
    if (config != nullptr) {
      job_.ds_config = *config;
      job_.ds_config_inline = true;
      job_.ds_config_source = job_.source;
    } else {
      config_from(*from, path + ".configFrom");
    }
    for (const Override& change : config_overrides)
      if (auto status = apply(change, 3, job_.ds_config); !status)
        report(Severity::Error, path + ".config", status.error().to_string());
  }

  void config_map(const json& from, const std::string& path) {
    if (from.contains("file"))
      report(Severity::Error, path + ".file", "files of your machine are not read in a cluster",
             "write the settings under spec.deepspeed.config, or name a ConfigMap");
    const std::string at = path + ".configMapKeyRef";
    const json* ref = object(from, "configMapKeyRef", at);
    if (ref == nullptr) {
      if (!from.contains("file"))
        report(Severity::Error, path, "no ConfigMap is named", "configMapKeyRef: {name, key}");
      return;
    }
    fields(*ref, at);
    ConfigMapKey source;
    for (auto& [name, field] : {std::pair{"name", &source.name}, std::pair{"key", &source.key}}) {
      const auto found = ref->find(name);
      if (found != ref->end() && found->is_string() && !found->get<std::string>().empty())
        *field = found->get<std::string>();
      else
        report(Severity::Error, join(at, name), "a name is missing");
    }
    if (!source.name.empty() && !source.key.empty()) job_.ds_config_map = source;
  }

  void config_from(const json& from, const std::string& path) {
    fields(from, path);
    if (place_ == Place::Cluster) return config_map(from, path);
    const auto file = from.find("file");
    if (file == from.end() || !file->is_string()) {
      report(Severity::Error, path, "no file is named",
             "write file: ds_config.json; a ConfigMap is read in a cluster only");
      return;
    }
    auto document = dsconfig::read_file(absolute(file->get<std::string>()));
    if (!document) {
      report(Severity::Error, path + ".file", document.error().to_string());
      return;
    }
    job_.ds_config_source = document->source;
    job_.ds_positions = std::move(document->positions);
    job_.ds_config = std::move(document->value);
    if (!job_.ds_config.is_object()) {
      report(Severity::Error, path + ".file", "the file does not hold an object of settings");
      job_.ds_config = json::object();
    }
  }

  std::string base_;
  Place place_;
  Job& job_;
  bool in_part_ = false;  ///< the job names a DeepSpeedJobTemplate
};

}  // namespace

Result<Job> read_manifest(const dsconfig::Document& manifest, const std::string& base,
                          const std::vector<std::string>& overrides) {
  if (!manifest.value.is_object())
    return bad_input("expected a DeepSpeedJob with apiVersion, kind, metadata and spec",
                     manifest.source);
  json value = manifest.value;
  std::vector<Override> config_overrides;
  const auto from = nlohmann::json::json_pointer("/spec/deepspeed/configFrom");
  for (const std::string& text : overrides) {
    DSJ_TRY(Override change, parse_override(text));
    const bool in_config = change.path.size() > 3 && change.path[0] == "spec" &&
                           change.path[1] == "deepspeed" && change.path[2] == "config";
    if (in_config && value.contains(from)) {
      config_overrides.push_back(std::move(change));
      continue;
    }
    DSJ_TRY_STATUS(apply(change, 0, value));
  }
  Job job;
  job.source = manifest.source;
  job.positions = manifest.positions;
  ManifestReader(base, Place::Local, job).read(value, config_overrides);
  dsconfig::locate(job.findings, job.positions);
  return job;
}

Result<Job> read_cluster_manifest(const json& object) {
  if (!object.is_object()) return bad_input("expected a DeepSpeedJob");
  Job job;
  job.source = "manifest";
  ManifestReader("/", Place::Cluster, job).read(object, {});
  return job;
}

Status set_ds_config(Job& job, const std::string& text, const std::string& source) {
  DSJ_TRY(dsconfig::Document document, dsconfig::parse_text(text, source));
  if (!document.value.is_object()) return bad_input("expected an object of settings", source);
  job.ds_config_source = document.source;
  job.ds_positions = std::move(document.positions);
  job.ds_config = std::move(document.value);
  return {};
}

}  // namespace dsj::jobspec

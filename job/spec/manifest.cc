// The fields of a DeepSpeedJob manifest, one method per object. Everything wrong becomes a finding.
#include <algorithm>

#include "common/json.h"
#include "job/spec/config_reader.h"
#include "job/spec/field_reader.h"
#include "job/spec/initializers.h"
#include "job/spec/job.h"
#include "job/spec/origin.h"
#include "job/spec/overrides.h"
#include "job/spec/policies_reader.h"
#include "job/spec/topology_reader.h"
#include "job/spec/training_reader.h"
#include "job/spec/user_program.h"

namespace dsj::jobspec {
namespace {

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
  ManifestReader(Origin origin, Job& job)
      : FieldReader(job.findings), origin_(std::move(origin)), job_(job) {}

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
    read_training(*spec, origin_, job_);
    workers(*spec);
    read_initializers(*spec, {job_.training, in_part_, origin_.in_cluster()}, job_.worker_template,
                      *this);
    if (job_.runs_user_program())
      user_program();
    else
      device();
    policies(*spec);
    read_ds_config(*spec, config_overrides, origin_, job_);
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
    else if (!origin_.in_cluster())
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
      report(
          Severity::Warning, "spec.training.device",
          "cpu, and each worker asks for " + std::to_string(gpus.all()) + " GPUs: they stay idle",
          "remove one of the two");
    else if (job_.slots_per_worker > gpus.seen())
      too_few_gpus(gpus);
  }

  /// Each rank of such a worker would refuse to start.
  void too_few_gpus(const WorkerGpus& gpus) {
    const std::string seen = std::to_string(gpus.seen());
    report(origin_.in_cluster() ? Severity::Error : Severity::Warning,
           "spec.workers.slotsPerWorker",
           std::to_string(job_.slots_per_worker) + ", and " +
               (gpus.parts > 0
                    ? "each worker asks for parts of a divided GPU (nvidia.com/mig-*): a process "
                      "sees one of them"
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
    if (origin_.in_cluster()) return;
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
    if (origin_.in_cluster()) return;
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
    if (!origin_.in_cluster())
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

  const Origin origin_;
  Job& job_;
  bool in_part_ = false;  ///< the job names a DeepSpeedJobTemplate
};

}  // namespace

Result<Job> read_manifest(const dsconfig::Document& manifest, const std::string& base,
                          const std::vector<std::string>& overrides, Place place) {
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
  ManifestReader({base, place}, job).read(value, config_overrides);
  dsconfig::locate(job.findings, job.positions);
  return job;
}

Result<Job> read_cluster_manifest(const json& object) {
  if (!object.is_object()) return bad_input("expected a DeepSpeedJob");
  Job job;
  job.source = "manifest";
  ManifestReader({"/", Place::Cluster}, job).read(object, {});
  return job;
}

}  // namespace dsj::jobspec

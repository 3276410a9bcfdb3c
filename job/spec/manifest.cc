// The fields of a DeepSpeedJob manifest, one method per object. Every error becomes a finding.
#include <algorithm>

#include "common/json.h"
#include "job/spec/config_reader.h"
#include "job/spec/container_mounts.h"
#include "job/spec/field_reader.h"
#include "job/spec/initializers.h"
#include "job/spec/job.h"
#include "job/spec/origin.h"
#include "job/spec/overrides.h"
#include "job/spec/schema.h"
#include "job/spec/stored_job.h"
#include "job/spec/training_reader.h"
#include "job/spec/user_program.h"

namespace dsj::jobspec {
namespace {

using dsconfig::Finding;
using nlohmann::json;
using Severity = Finding::Severity;

constexpr int kMaxRanks = 65'536;
constexpr char kTopologyPath[] = "spec.workers.topology";
constexpr char kRequiredTerms[] = "requiredDuringSchedulingIgnoredDuringExecution";
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

/// Reports conflicts with spec.workers.topology: a scheduler's own topology, and the pod template (null if missing).
void check_topology(const Topology& topology, GangScheduler scheduler, const json& pod_template,
                    FieldReader& reader) {
  if (scheduler == GangScheduler::Volcano)
    return reader.report(Severity::Unsupported, kTopologyPath,
                         "Volcano packs a group by the tiers of its HyperNodes: it does not use "
                         "labels of nodes as domains",
                         "remove topology or runPolicy.schedulingPolicy; Kueue packs by a label");
  const std::string pod = "spec.workers.template.";
  if (scheduler == GangScheduler::Kueue) {
    const json& theirs = json_child(json_child(pod_template, "metadata"), "annotations");
    for (const char* kind : {"required", "preferred", "unconstrained"}) {
      const std::string name = std::string("kueue.x-k8s.io/podset-") + kind + "-topology";
      if (theirs.is_object() && theirs.contains(name))
        reader.report(
            Severity::Error, pod + "metadata.annotations",
            "\"" + name + "\" and " + kTopologyPath + " both place the pods, and Kueue accepts one",
            "remove one of the two");
    }
    return;
  }
  const json& affinity =
      json_child(json_child(json_child(pod_template, "spec"), "affinity"), "podAffinity");
  const json& terms = json_child(affinity, kRequiredTerms);
  if (topology.mode == Topology::Mode::Required && terms.is_array() && !terms.empty())
    reader.report(Severity::Error, pod + "spec.affinity.podAffinity." + kRequiredTerms,
                  "a required term cannot be combined with " + std::string(kTopologyPath) +
                      ": only pods that match all required terms count, and none does before the "
                      "first worker",
                  "write it as preferredDuringSchedulingIgnoredDuringExecution, or topology as "
                  "mode: Preferred");
}

bool is_job_name(const std::string& name, size_t most) {
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  return !name.empty() && name.size() <= most && is_lower(name[0]) && name.back() != '-' &&
         std::ranges::all_of(
             name, [&](char c) { return is_lower(c) || (c >= '0' && c <= '9') || c == '-'; });
}

class ManifestReader : private FieldReader {
 public:
  ManifestReader(Origin origin, Job& job)
      : FieldReader(job.findings), origin_(std::move(origin)), job_(job) {}

  void read(const json& manifest, const std::vector<Override>& config_overrides) {
    FieldReader::read(job_schema(), manifest, "", &job_);
    name(json_child(manifest, "metadata"));
    const json& spec = json_child(manifest, "spec");
    if (!spec.is_object()) return;
    read_training(spec, origin_, job_);
    workers(json_child(spec, "workers"));
    read_initializers(spec, {job_.training, in_part_, origin_.in_cluster()}, job_.worker_template,
                      *this);
    if (job_.runs_user_program())
      user_program();
    else
      device();
    failures(json_child(spec, "failurePolicy"));
    scheduling(json_child(json_child(spec, "runPolicy"), "schedulingPolicy"));
    elastic();
    if (origin_.in_cluster() && !in_part_)
      check_output_dir(job_.worker_template, job_.training, most_workers(), origin_.read_only_root,
                       *this);
    if (job_.policies.topology && origin_.in_cluster())
      check_topology(*job_.policies.topology, job_.policies.run.scheduling.scheduler,
                     job_.worker_template, *this);
    if (!origin_.in_cluster()) refuse_of_cluster(job_schema(), manifest, "");
    read_ds_config(spec, config_overrides, origin_, job_);
    const auto wrong = [](const Finding& finding) { return finding.severity == Severity::Error; };
    if (origin_.in_cluster() && std::ranges::none_of(job_.findings, wrong)) size(spec);
  }

 private:
  void size(const json& spec) {
    const StoredTexts texts = {.spec = spec.dump(-1, ' ', false, json::error_handler_t::replace)};
    if (const auto wrong = check_stored_size(job_, texts)) job_.findings.push_back(*wrong);
  }

  void name(const json& metadata) {
    if (!metadata.is_object()) return;
    const json& name = json_child(metadata, "name");
    const json& prefix = json_child(metadata, "generateName");
    if (!name.is_string() && prefix.is_string()) return generated_name(prefix);
    if (!name.is_string())
      return report(Severity::Error, "metadata.name", "a name is missing", "add name: my-job");
    job_.name = name.get<std::string>();
    if (!is_job_name(job_.name, 40))
      report(
          Severity::Error, "metadata.name",
          "found " + shown(job_.name) + ", expected at most 40 of a-z, 0-9 and -, a letter first");
  }

  /// With `kubectl create`, an API server appends five characters. Here the name lacks them.
  void generated_name(const std::string& prefix) {
    job_.name = prefix.substr(0, prefix.find_last_not_of('-') + 1);
    if (!is_job_name(job_.name, 35) || prefix.size() > 35)
      report(Severity::Error, "metadata.generateName",
             "found " + shown(prefix) + ", expected at most 35 of a-z, 0-9 and -, a letter first");
  }

  /// Refuses fields that act only in a cluster.
  void refuse_of_cluster(const Field& row, const json& object, const std::string& path) {
    for (const Field& field : row.fields) {
      const json& value = json_child(object, field.name.c_str());
      const std::string at = join(path, field.name);
      if (value.empty() || value == false) continue;
      if (field.actors != 0 && (field.actors & kLocal) == 0)
        report(Severity::Unsupported, at, "has effect in a cluster only",
               field.hint.empty() ? "remove it" : field.hint);
      else if (value.is_object() && !field.read_elsewhere)
        refuse_of_cluster(field, value, at);
    }
  }

  void workers(const json& found) {
    if (!found.is_object()) return;
    const std::string path = "spec.workers";
    if (static_cast<int64_t>(job_.replicas) * job_.slots_per_worker > kMaxRanks) {
      report(Severity::Error, path, "more than " + std::to_string(kMaxRanks) + " ranks");
      job_.replicas = job_.slots_per_worker = 1;
    }
    const int least = job_.min_replicas.value_or(job_.replicas);
    const int most = job_.max_replicas.value_or(job_.replicas);
    if (least > job_.replicas || most < job_.replicas)
      report(Severity::Error, path,
             "minReplicas " + std::to_string(least) + ", replicas " +
                 std::to_string(job_.replicas) + ", maxReplicas " + std::to_string(most) +
                 ": not in this order");
    else if (least != most)
      report(Severity::Unsupported, path, "minReplicas and maxReplicas do not make a job elastic",
             kElasticHint);
    // The DeepSpeedJobTemplate is not read here: worker_template.h merges it into the spec before
    // the operator reads that.
    in_part_ = json_child(found, "templateRef").is_object();
    if (const json& pod = json_child(found, "template"); pod.is_object()) {
      job_.worker_template = without_nulls(pod);
      const RankProgram program = !job_.runs_user_program() ? RankProgram::Engine
                                  : in_part_                ? RankProgram::OwnInPart
                                                            : RankProgram::Own;
      check_template(job_.worker_template, path + ".template", program, *this);
    }
  }

  /// Workers that request GPUs must train on GPUs.
  void device() {
    const WorkerGpus gpus = worker_gpus(job_.worker_template);
    auto& device = job_.training.device;
    const Severity severity = origin_.in_cluster() ? Severity::Error : Severity::Warning;
    if (!gpus.other.empty() && device != "cpu")
      report(severity, "spec.workers.template.spec.containers[worker].resources",
             gpus.other + ": the ranks of this engine train on GPUs of NVIDIA or on the CPU",
             "ask for nvidia.com/gpu, or bring a program for it with launcher: Command");
    if (gpus.claimed && !device)
      report(severity, "spec.training.device",
             "a field is missing: the devices of the workers' resource claims are unknown here",
             "write cuda if it is GPUs of NVIDIA, or cpu");
    if (gpus.all() == 0) return;
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
    report(
        origin_.in_cluster() ? Severity::Error : Severity::Warning, "spec.workers.slotsPerWorker",
        std::to_string(job_.slots_per_worker) + ", and " +
            (gpus.parts > 0
                 ? "each worker asks for parts of a GPU (nvidia.com/mig-*, nvidia.com/*.shared): "
                   "a process sees one of them"
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

  int most_workers() const {
    const auto& elastic = job_.policies.elastic;
    return elastic ? std::max<int>(job_.replicas, elastic->max_replicas) : job_.replicas;
  }

  void failures(const json& policy) {
    FailurePolicy& failure = job_.policies.failure;
    const std::string path = "spec.failurePolicy";
    for (size_t i = 0; i < failure.rules.size() && !is_wrong(path + ".rules"); ++i) {
      const FailureRule& rule = failure.rules[i];
      if (rule.exit_codes.empty() && rule.reasons.empty() && rule.pod_conditions.empty())
        report(Severity::Error, path + ".rules[" + std::to_string(i) + "]",
               "the rule would match every failure",
               "give onExitCodes, onReasons or onPodConditions");
    }
    if (job_.policies.run.scheduling.scheduler != GangScheduler::Kueue) return;
    const json& action = json_child(json_child(policy, "nodeHealth"), "action");
    if (action.is_null()) failure.node_health.action = NodeHealthAction::Report;
    if (action == "Move")
      report(Severity::Error, path + ".nodeHealth.action",
             "Kueue takes a pod into a running group only if it looks like the one before it: "
             "the successor could not avoid the node",
             "Report or Off");
  }

  void scheduling(const json& policy) {
    const Scheduling& wanted = job_.policies.run.scheduling;
    const std::string path = "spec.runPolicy.schedulingPolicy";
    if (json_child(policy, "scheduler") == "scheduler-plugins")
      report(Severity::Unsupported, path + ".scheduler",
             "not built: its pod groups have neither queues nor priorities",
             "volcano places a gang as a whole, too");
    if (wanted.scheduler == GangScheduler::None) return;
    const bool kueue = wanted.scheduler == GangScheduler::Kueue;
    if (kueue && json_child(policy, "queue").is_null())
      report(Severity::Error, path + ".queue", "a field is missing",
             "name a LocalQueue of the job's namespace");
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

  /// Checks what elastic_sizes() does not: it considers only the batch.
  void elastic() {
    if (!job_.policies.elastic) return;
    const Elastic bounds = *job_.policies.elastic;
    const std::string path = "spec.elastic";
    const int64_t recovery = job_.policies.run.recovery_deadline_seconds;
    if (bounds.shrink_after_seconds > recovery)
      report(Severity::Error, path + ".shrinkAfterSeconds",
             std::to_string(bounds.shrink_after_seconds) +
                 " s is beyond runPolicy.recoveryDeadlineSeconds, " + std::to_string(recovery) +
                 ": all pods would be given back first");
    if (bounds.min_replicas > bounds.max_replicas) {
      report(Severity::Error, path,
             "minReplicas " + std::to_string(bounds.min_replicas) + " is above maxReplicas " +
                 std::to_string(bounds.max_replicas));
      job_.policies.elastic.reset();
      return;
    }
    if (job_.replicas < bounds.min_replicas || job_.replicas > bounds.max_replicas)
      report(Severity::Error, "spec.workers.replicas",
             std::to_string(job_.replicas) + " is not from elastic.minReplicas " +
                 std::to_string(bounds.min_replicas) + " to maxReplicas " +
                 std::to_string(bounds.max_replicas),
             "replicas is the number of workers that the job should have");
    if (job_.runs_user_program())
      report(Severity::Unsupported, path,
             "it is unknown whether your own program continues with another number of ranks",
             "remove it; `kubectl scale` restarts the program with another number of workers");
    switch (job_.policies.run.scheduling.scheduler) {
      case GangScheduler::None:
        return;
      case GangScheduler::Kueue:
        return report(Severity::Unsupported, path,
                      "Kueue admits a whole pod group: it has partial admission only for batch "
                      "Jobs, and a group cannot request more later",
                      "remove elastic or runPolicy.schedulingPolicy");
      case GangScheduler::Volcano:
        return report(
            Severity::Unsupported, path,
            "Volcano gives a pod group all its nodes or none, so nothing shows that fewer "
            "workers have nodes",
            "remove elastic or runPolicy.schedulingPolicy");
    }
  }

  const Origin origin_;
  Job& job_;
  bool in_part_ = false;  ///< the job names a DeepSpeedJobTemplate
};

/// Errors: if the object is of another kind; its fields are not read.
Status check_kind(const dsconfig::Document& manifest) {
  const json& kind = json_child(manifest.value, "kind");
  if (!kind.is_string() || kind == kKind) return {};
  static constexpr std::pair<const char*, const char*> kHints[] = {
      {"PyTorchJob", "dsj import pytorchjob FILE converts it"},
      {"MPIJob", "dsj import mpijob FILE converts it"},
      {"TrainJob", "dsj import trainjob FILE converts it"},
      {"List", "one job per file"},
      {"DeepSpeedJobTemplate", "kubectl apply checks it; a job names it in workers.templateRef"}};
  const auto known =
      std::ranges::find_if(kHints, [&](const auto& hint) { return kind == hint.first; });
  std::string where = manifest.source;
  if (const auto at = manifest.positions.find("kind"); at != manifest.positions.end())
    where +=
        ":" + std::to_string(at->second.key.line) + ":" + std::to_string(at->second.key.column);
  return bad_input("kind: found " + json_brief(kind) + ", expected " + kKind, where,
                   known == std::end(kHints) ? std::string("add kind: ") + kKind : known->second);
}

}  // namespace

Result<Job> read_manifest(const dsconfig::Document& manifest, const std::string& base,
                          const std::vector<std::string>& overrides, Place place) {
  if (!manifest.value.is_object())
    return bad_input("expected a DeepSpeedJob with apiVersion, kind, metadata and spec",
                     manifest.source);
  DSJ_TRY_STATUS(check_kind(manifest));
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

Result<Job> read_cluster_manifest(const json& object, std::optional<bool> read_only_root) {
  if (!object.is_object()) return bad_input("expected a DeepSpeedJob");
  Job job;
  job.source = "manifest";
  ManifestReader({"/", Place::Cluster, read_only_root}, job).read(object, {});
  return job;
}

}  // namespace dsj::jobspec

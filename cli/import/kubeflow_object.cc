#include "cli/import/kubeflow_object.h"

#include <algorithm>

#include "common/text.h"

namespace dsj::jobimport {
namespace {

using nlohmann::json;

/// Removes a field from `object`. Fields that remain in the end are reported.
json take(json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  if (found == object.end()) return nullptr;
  json value = std::move(*found);
  object.erase(found);
  return value;
}

json part(const json& object, const char* name) {
  return object.is_object() && object.contains(name) ? object[name] : json();
}

std::optional<int64_t> whole(const json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_string()) return text::parse_int(value.get<std::string>());
  return std::nullopt;
}

class ObjectReader {
 public:
  ObjectReader(const json& object, const std::string& source) : source_(source) {
    spec_ = part(object, "spec");
    const json metadata = part(object, "metadata");
    const json name = part(metadata, "name").is_string() ? metadata["name"] : json("imported");
    out_.name = name;
    for (const char* kept : {"namespace", "labels", "annotations"})
      if (!part(metadata, kept).is_null()) out_.metadata[kept] = metadata[kept];
    if (out_.metadata.contains("annotations"))
      out_.metadata["annotations"].erase("kubectl.kubernetes.io/last-applied-configuration");
  }

  Result<KubeflowObject> pytorch_job() {
    json replicas = take(spec_, "pytorchReplicaSpecs");
    json master = take(replicas, "Master"), worker = take(replicas, "Worker");
    const json& main = worker.is_object() ? worker : master;
    if (!main.is_object()) return none("spec.pytorchReplicaSpecs has neither Master nor Worker");
    out_.replicas =
        (master.is_object() ? count(master) : 0) + (worker.is_object() ? count(worker) : 0);
    if (master.is_object() && worker.is_object() && template_of(master) != template_of(worker))
      lost("the Master's own template", "all workers of a job have the Worker's");
    processes(take(spec_, "nprocPerNode"), "spec.nprocPerNode");
    restart_policy(main);
    if (json elastic = take(spec_, "elasticPolicy"); elastic.is_object()) elastic_policy(elastic);
    run_policy("None");
    rest(replicas, "spec.pytorchReplicaSpecs.");
    rest(spec_, "spec.");
    return with_container(template_of(main), "pytorch");
  }

  Result<KubeflowObject> mpi_job() {
    json replicas = take(spec_, "mpiReplicaSpecs");
    json launcher = take(replicas, "Launcher"), worker = take(replicas, "Worker");
    if (!launcher.is_object()) return none("spec.mpiReplicaSpecs has no Launcher");
    const bool launcher_works = take(spec_, "runLauncherAsWorker") == true;
    out_.replicas = (worker.is_object() ? count(worker) : 0) + (launcher_works ? 1 : 0);
    if (*out_.replicas == 0) out_.replicas = 1;
    out_.slots = whole(take(spec_, "slotsPerWorker")).value_or(1);
    for (const char* field : {"sshAuthMountPath", "mpiImplementation", "launcherCreationPolicy"})
      if (const json value = take(spec_, field); !value.is_null())
        lost(std::string("spec.") + field + " " + value.dump(),
             "agents start the ranks: no SSH, no MPI");
    restart_policy(launcher);
    run_policy("None");
    rest(replicas, "spec.mpiReplicaSpecs.");
    rest(spec_, "spec.");
    // The launcher's container has the command, the workers' the ranks' resources.
    const json of_launcher = template_of(launcher);
    DSJ_TRY(KubeflowObject whole,
            with_container(worker.is_object() ? template_of(worker) : of_launcher, ""));
    const json containers = part(part(of_launcher, "spec"), "containers");
    if (containers.is_array() && !containers.empty()) whole.words = words_of(containers[0]);
    whole.not_carried.push_back("the Launcher's pod: there is none, worker 0's agent leads");
    return whole;
  }

  Result<KubeflowObject> train_job() {
    const json runtime = take(spec_, "runtimeRef");
    out_.left_open.push_back(
        "the runtime " + (part(runtime, "name").is_string() ? runtime["name"].dump() : "?") +
        ": its template (image, volumes, defaults) is not in this file; compare `kubectl get "
        "clustertrainingruntime -o yaml`");
    json trainer = take(spec_, "trainer");
    json container = {{"name", "node"}};
    for (const char* same : {"image", "command", "args", "env"})
      if (json value = take(trainer, same); !value.is_null()) container[same] = value;
    if (json resources = take(trainer, "resourcesPerNode"); !resources.is_null())
      container["resources"] = resources;
    out_.replicas = whole(take(trainer, "numNodes"));
    if (!out_.replicas)
      out_.left_open.push_back(
          "spec.workers.replicas: 1, the runtime's numNodes is not known here");
    processes(take(trainer, "numProcPerNode"), "spec.trainer.numProcPerNode");
    json pod = {{"spec", {{"containers", json::array({container})}}}};
    pod_overrides(pod);
    initializers();
    if (const json value = take(spec_, "suspend"); value == true) out_.spec["suspend"] = true;
    if (const json value = take(spec_, "activeDeadlineSeconds"); !value.is_null())
      out_.spec["runPolicy"]["activeDeadlineSeconds"] = value;
    managed_by(spec_);
    for (const char* field : {"labels", "annotations"})  // for the pods that the runtime creates
      if (const json value = take(spec_, field); value.is_object()) pod["metadata"][field] = value;
    rest(trainer, "spec.trainer.");
    rest(spec_, "spec.");
    return with_container(pod, "node");
  }

 private:
  std::unexpected<Error> none(const std::string& what) const { return bad_input(what, source_); }

  void lost(const std::string& what, const std::string& why) {
    out_.not_carried.push_back(what + ": " + why);
  }

  void rest(const json& object, const std::string& path) {
    if (!object.is_object()) return;
    for (const auto& [name, value] : object.items())
      lost(path + name, "has no place in a DeepSpeedJob, or is not known here");
  }

  static int64_t count(const json& replica) { return whole(part(replica, "replicas")).value_or(1); }
  static json template_of(const json& replica) {
    const json found = part(replica, "template");
    return found.is_object() ? found : json::object();
  }

  static std::vector<std::string> words_of(const json& container) {
    std::vector<std::string> words;
    for (const char* list : {"command", "args"}) {
      const json found = part(container, list);
      if (!found.is_array()) continue;
      for (const json& word : found)
        if (word.is_string()) words.push_back(word);
    }
    return words;
  }

  Result<KubeflowObject> with_container(json pod, const std::string& name) {
    const json containers = part(part(pod, "spec"), "containers");
    if (!containers.is_array() || containers.empty() || !containers[0].is_object())
      return none("the pod template has no container");
    for (size_t i = 0; i < containers.size(); ++i)
      if (!name.empty() && containers[i].value("name", "") == name) out_.container = i;
    out_.words = words_of(containers[out_.container]);
    out_.pod_template = std::move(pod);
    return std::move(out_);
  }

  void processes(const json& value, const std::string& path) {
    if (value.is_null()) return;
    out_.slots = whole(value);
    if (!out_.slots)
      out_.left_open.push_back(path + " " + value.dump() +
                               ": the node's devices are not known here; the container's GPUs, or "
                               "1, are taken");
  }

  void restart_policy(const json& replica) {
    const json policy = part(replica, "restartPolicy");
    if (policy == "Never") out_.spec["restartPolicy"] = "Never";
    if (policy == "ExitCode")
      lost("restartPolicy ExitCode",
           "exit codes mean something else here; spec.failurePolicy.rules can say which end the "
           "job");
  }

  void elastic_policy(json& elastic) {
    for (const char* quiet :
         {"rdzvBackend", "rdzvPort", "rdzvHost", "rdzvId", "rdzvConf", "standalone"})
      take(elastic, quiet);  // the agents do the rendezvous: nothing is lost
    if (const auto restarts = whole(take(elastic, "maxRestarts")))
      out_.spec["backoffLimit"] = *restarts;
    if (const json value = take(elastic, "nProcPerNode"); !out_.slots) out_.slots = whole(value);
    for (const char* bound : {"minReplicas", "maxReplicas", "metrics"})
      if (const json value = take(elastic, bound); !value.is_null())
        lost(std::string("spec.elasticPolicy.") + bound,
             "spec.elastic has such bounds; it needs a batch that is fixed (docs/scheduling.md)");
    rest(elastic, "spec.elasticPolicy.");
  }

  void managed_by(json& object) {
    if (const json value = take(object, "managedBy"); !value.is_null())
      lost("managedBy " + value.dump(), "one operator runs all DeepSpeedJobs");
  }

  void run_policy(const char* clean_default) {
    json policy = take(spec_, "runPolicy");
    json& run = out_.spec["runPolicy"];
    const json clean = take(policy, "cleanPodPolicy");
    run["cleanPodPolicy"] =
        clean.is_string() && !clean.get<std::string>().empty() ? clean : json(clean_default);
    for (const char* same : {"ttlSecondsAfterFinished", "activeDeadlineSeconds"})
      if (json value = take(policy, same); !value.is_null()) run[same] = value;
    if (const auto limit = whole(take(policy, "backoffLimit"))) out_.spec["backoffLimit"] = *limit;
    if (take(policy, "suspend") == true) out_.spec["suspend"] = true;
    managed_by(policy);
    if (const json value = take(policy, "schedulingPolicy"); value.is_object())
      for (const auto& [name, what] : value.items())
        lost("runPolicy.schedulingPolicy." + name + " " + what.dump(),
             "what gang schedulers need here is in docs/scheduling.md");
    rest(policy, "spec.runPolicy.");
  }

  /// Applies the node's podTemplateOverrides (Trainer 2.0, 2.1); reports runtimePatches (2.2).
  void pod_overrides(json& pod) {
    const json overrides = take(spec_, "podTemplateOverrides");
    if (!overrides.is_array()) return;
    for (const json& one : overrides) {
      const json targets = part(one, "targetJobs");
      const bool ours =
          std::ranges::any_of(targets.is_array() ? targets : json::array(),
                              [](const json& job) { return part(job, "name") == "node"; });
      if (!ours) {
        lost("a podTemplateOverride of " + targets.dump(), "only the trainer's pods are a job's");
        continue;
      }
      json spec = part(one, "spec");
      const json containers = take(spec, "containers");
      pod["spec"].merge_patch(spec.is_object() ? spec : json::object());
      if (const json metadata = part(one, "metadata"); metadata.is_object())
        pod["metadata"].merge_patch(metadata);
      for (const json& container : containers.is_array() ? containers : json::array()) {
        if (part(container, "name") != "node") {
          pod["spec"]["containers"].push_back(container);
          continue;
        }
        json& node = pod["spec"]["containers"][0];
        for (const char* list : {"env", "volumeMounts"})
          for (const json& item :
               part(container, list).is_array() ? container[list] : json::array())
            node[list].push_back(item);
      }
    }
  }

  void initializers() {
    const json initializer = take(spec_, "initializer");
    for (const char* what : {"dataset", "model"}) {
      const json one = part(initializer, what);
      if (one.is_object())
        lost(std::string("spec.initializer.") + what + " " + part(one, "storageUri").dump(),
             "write spec.initializers with an image that fetches it (docs/cluster.md), or put "
             "it on the volume first");
    }
  }

  const std::string& source_;
  json spec_;
  KubeflowObject out_;
};

struct Identity {
  const char* api_version;
  const char* kind;
};

Identity identity_of(KubeflowKind kind) {
  switch (kind) {
    case KubeflowKind::PyTorchJob:
      return {"kubeflow.org/v1", "PyTorchJob"};
    case KubeflowKind::MPIJob:
      return {"kubeflow.org/v2beta1", "MPIJob"};
    case KubeflowKind::TrainJob:
      return {"trainer.kubeflow.org/v1alpha1", "TrainJob"};
  }
  return {"", ""};
}

}  // namespace

const char* name_of(KubeflowKind kind) {
  return identity_of(kind).kind;
}

Result<KubeflowObject> read_kubeflow(KubeflowKind kind, const json& object,
                                     const std::string& source) {
  const Identity wanted = identity_of(kind);
  const json version = part(object, "apiVersion"), found = part(object, "kind");
  if (version != wanted.api_version || found != wanted.kind)
    return bad_input("found " + found.dump() + " of " + version.dump() + ", expected " +
                         wanted.kind + " of " + wanted.api_version,
                     source);
  if (!part(object, "spec").is_object()) return bad_input("has no spec", source);
  ObjectReader reader(object, source);
  switch (kind) {
    case KubeflowKind::PyTorchJob:
      return reader.pytorch_job();
    case KubeflowKind::MPIJob:
      return reader.mpi_job();
    case KubeflowKind::TrainJob:
      break;
  }
  return reader.train_job();
}

}  // namespace dsj::jobimport

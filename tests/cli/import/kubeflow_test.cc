#include "cli/import/kubeflow.h"

#include "job/spec/yaml.h"
#include "tests/cli/import/support.h"

namespace dsj::jobimport {
namespace {

using nlohmann::json;

constexpr char kPyTorch[] = R"yaml(
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: Tune_7B
  namespace: team
  labels: {owner: me}
  annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}
spec:
  nprocPerNode: "8"
  elasticPolicy: {minReplicas: 1, maxReplicas: 4, maxRestarts: 7, rdzvBackend: c10d}
  runPolicy:
    cleanPodPolicy: All
    ttlSecondsAfterFinished: 60
    activeDeadlineSeconds: 3600
    suspend: true
    schedulingPolicy: {queue: fast, minAvailable: 4}
    managedBy: kueue.x-k8s.io/multikueue
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template: &pod
        metadata: {labels: {app: tune}}
        spec:
          restartPolicy: Never
          nodeName: n1
          nodeSelector: {gpu: a100}
          containers:
            - {name: sidecar, image: proxy}
            - name: pytorch
              image: registry/train:1
              workingDir: /app
              command: [torchrun, "--nproc_per_node=$(NPROC)", --nnodes=4, train.py]
              args: [--deepspeed, /etc/ds/zero3.json, --model_name_or_path, /models/m, --data_path, rows.json,
                     --output_dir, out, --bf16, "True", --report_to, wandb, --learning_rate, "1e-5"]
              env:
                - {name: NCCL_DEBUG, value: INFO}
                - {name: PET_NPROC_PER_NODE, value: "8"}
              resources: {limits: {nvidia.com/gpu: 8}}
              volumeMounts:
                - {name: ds, mountPath: /etc/ds}
          volumes:
            - {name: ds, configMap: {name: ds-configs, items: [{key: z3, path: zero3.json}]}}
    Worker:
      replicas: 3
      template: *pod
  surprise: 1
)yaml";

json yaml(const std::string& text) {
  const auto document = jobspec::parse_yaml(text, "job.yaml");
  EXPECT_TRUE(document) << document.error().to_string();
  return document ? document->value : json();
}

Result<Imported> import(KubeflowKind kind, const json& object,
                        const KubeflowOptions& options = {}) {
  Folder folder;
  folder.add("ds.json", R"({"train_micro_batch_size_per_gpu": 1})");
  return import_kubeflow(folder.files, kind, object, "job.yaml", options);
}

TEST(Kubeflow, APyTorchJobBecomesWorkersPoliciesAndArguments) {
  auto imported = import(KubeflowKind::PyTorchJob, yaml(kPyTorch));
  ASSERT_TRUE(imported) << imported.error().to_string();
  ASSERT_TRUE(finish(*imported, {})) << finish(*imported, {}).error().to_string();
  const json& spec = imported->manifest["spec"];
  EXPECT_EQ(imported->manifest["metadata"], (json{{"name", "tune-7b"},
                                                  {"namespace", "team"},
                                                  {"labels", {{"owner", "me"}}},
                                                  {"annotations", json::object()}}));
  EXPECT_EQ(spec["workers"]["replicas"], 4);
  EXPECT_EQ(spec["workers"]["slotsPerWorker"], 8);
  EXPECT_EQ(spec["deepspeed"]["configFrom"]["configMapKeyRef"],
            (json{{"name", "ds-configs"}, {"key", "z3"}}));
  EXPECT_EQ(spec["training"]["modelNameOrPath"], "/models/m");
  EXPECT_EQ(spec["training"]["dataPath"], "/app/rows.json");
  EXPECT_EQ(spec["training"]["outputDir"], "/app/out");
  EXPECT_EQ(spec["training"]["learningRate"], 1e-5);
  EXPECT_EQ(spec["training"]["reportTo"], "wandb");
  EXPECT_EQ(spec["runPolicy"], (json{{"cleanPodPolicy", "All"},
                                     {"ttlSecondsAfterFinished", 60},
                                     {"activeDeadlineSeconds", 3600}}));
  EXPECT_EQ(spec["suspend"], true);
  EXPECT_EQ(spec["backoffLimit"], 7);
  const json& pod = spec["workers"]["template"];
  EXPECT_EQ(pod["metadata"]["labels"]["app"], "tune");
  EXPECT_EQ(pod["spec"]["nodeSelector"]["gpu"], "a100");
  EXPECT_FALSE(pod["spec"].contains("nodeName"));
  const json& container = pod["spec"]["containers"][1];
  EXPECT_EQ(container["name"], "worker");
  for (const char* gone : {"image", "command", "args", "workingDir"})
    EXPECT_FALSE(container.contains(gone)) << gone;
  EXPECT_EQ(container["env"], json::parse(R"([{"name": "NCCL_DEBUG", "value": "INFO"}])"));
  EXPECT_EQ(container["resources"]["limits"]["nvidia.com/gpu"], 8);
}

TEST(Kubeflow, WhatIsNotCarriedOverIsNamed) {
  const auto imported = import(KubeflowKind::PyTorchJob, yaml(kPyTorch));
  ASSERT_TRUE(imported);
  for (const char* part : {"minReplicas", "maxReplicas", "schedulingPolicy.queue",
                           "schedulingPolicy.minAvailable", "managedBy", "nodeName",
                           "registry/train:1", "PET_NPROC_PER_NODE", "spec.surprise", "train.py"})
    EXPECT_TRUE(any_contains(imported->not_carried, part)) << part;
  EXPECT_TRUE(any_contains(imported->left_open, "Tune_7B became tune-7b"));
}

TEST(Kubeflow, TheProgramMayStay) {
  auto imported = import(KubeflowKind::PyTorchJob, yaml(kPyTorch), {.keep_program = true});
  ASSERT_TRUE(imported) << imported.error().to_string();
  const auto without = finish(*imported, {});
  ASSERT_FALSE(without);
  EXPECT_NE(without.error().message.find("outputDir"), std::string::npos);
  ASSERT_TRUE(finish(*imported, {"spec.training.outputDir=/mnt/out"}));
  const json& spec = imported->manifest["spec"];
  EXPECT_EQ(spec["launcher"], "Command");
  EXPECT_EQ(spec["training"], (json{{"outputDir", "/mnt/out"}}));
  const json& container = spec["workers"]["template"]["spec"]["containers"][1];
  EXPECT_EQ(container["image"], "registry/train:1");
  EXPECT_EQ(container["command"], json::parse(R"(["python", "-u", "train.py"])"));
  EXPECT_EQ(container["args"][0], "--deepspeed");
  EXPECT_TRUE(any_contains(imported->not_carried, "torchrun"));
}

TEST(Kubeflow, AnMpiJobIsItsLaunchersCommandAndItsWorkersPods) {
  auto imported = import(KubeflowKind::MPIJob, yaml(R"(
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: m}
spec:
  slotsPerWorker: 2
  sshAuthMountPath: /home/mpi/.ssh
  runPolicy: {backoffLimit: 2}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
            - name: l
              image: i
              command: [mpirun, -np, "6", -bind-to, none, python, -u, /app/train.py, --deepspeed, ds.json,
                        --model_name_or_path, /m, --data_path, /d, --output_dir, /o]
    Worker:
      replicas: 3
      template:
        spec:
          containers:
            - name: w
              image: i
              resources: {limits: {memory: 8Gi}}
)"));
  ASSERT_TRUE(imported) << imported.error().to_string();
  ASSERT_TRUE(finish(*imported, {}));
  const json& spec = imported->manifest["spec"];
  EXPECT_EQ(spec["workers"]["replicas"], 3);
  EXPECT_EQ(spec["workers"]["slotsPerWorker"], 2);
  EXPECT_EQ(spec["backoffLimit"], 2);
  EXPECT_EQ(spec["deepspeed"]["config"]["train_micro_batch_size_per_gpu"], 1) << "ds.json is here";
  EXPECT_EQ(spec["training"]["modelNameOrPath"], "/m");
  EXPECT_EQ(spec["workers"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"],
            "8Gi");
  for (const char* part : {"mpirun -np 6", "sshAuthMountPath", "Launcher's pod"})
    EXPECT_TRUE(any_contains(imported->not_carried, part)) << part;
}

TEST(Kubeflow, ATrainJobWithShellAndOverrides) {
  auto imported = import(KubeflowKind::TrainJob, yaml(R"(
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: t}
spec:
  runtimeRef: {name: torch-distributed}
  suspend: true
  initializer: {model: {storageUri: "hf://meta/llama"}}
  trainer:
    image: i:2
    numNodes: 2
    numProcPerNode: 4
    resourcesPerNode: {limits: {cpu: "4"}}
    command: [bash, -c, "pip install x\ndeepspeed --num_gpus 4 train.py --deepspeed /cfg/ds.json --model_name_or_path /m --data_path /d --output_dir /o"]
  podTemplateOverrides:
    - targetJobs: [{name: node}]
      spec:
        tolerations: [{operator: Exists}]
        containers: [{name: node, env: [{name: A, value: b}]}]
    - targetJobs: [{name: launcher}]
      spec: {}
  runtimePatches: [{manager: x}]
)"),
                         {.ds_config = "ds.json"});
  ASSERT_TRUE(imported) << imported.error().to_string();
  ASSERT_TRUE(finish(*imported, {})) << finish(*imported, {}).error().to_string();
  const json& spec = imported->manifest["spec"];
  EXPECT_EQ(spec["workers"]["replicas"], 2);
  EXPECT_EQ(spec["workers"]["slotsPerWorker"], 4);
  EXPECT_EQ(spec["suspend"], true);
  EXPECT_EQ(spec["deepspeed"]["config"]["train_micro_batch_size_per_gpu"], 1);
  const json& pod = spec["workers"]["template"]["spec"];
  EXPECT_EQ(pod["tolerations"][0]["operator"], "Exists");
  EXPECT_EQ(pod["containers"][0]["env"][0]["name"], "A");
  EXPECT_TRUE(any_contains(imported->left_open, "torch-distributed"));
  for (const char* part :
       {"hf://meta/llama", "spec.initializers", "pip install x", "launcher", "spec.runtimePatches"})
    EXPECT_TRUE(any_contains(imported->not_carried, part)) << part;
}

TEST(Kubeflow, AutomaticSlotsAreTheGpusThatAProcessSees) {
  const auto slots = [](const std::string& amounts) {
    auto imported = import(KubeflowKind::PyTorchJob, yaml(R"(
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: j}
spec:
  nprocPerNode: auto
  pytorchReplicaSpecs:
    Worker:
      template:
        spec:
          containers:
            - name: pytorch
              image: i
              command: [torchrun, train.py, --deepspeed, ds.json, --model_name_or_path, /m, --data_path, /d,
                        --output_dir, /o]
              resources: {limits: {)" + amounts + "}}\n"));
    if (!imported) return imported.error().to_string();
    if (const auto done = finish(*imported, {}); !done) return done.error().to_string();
    return imported->manifest["spec"]["workers"]["slotsPerWorker"].dump();
  };
  EXPECT_EQ(slots("cpu: 4"), "1");
  EXPECT_EQ(slots("nvidia.com/gpu: 4"), "4");
  EXPECT_EQ(slots("nvidia.com/gpu: '4'"), "4");
  EXPECT_EQ(slots("nvidia.com/mig-1g.10gb: 4"), "1");
  for (const char* wrong : {"''", "'99999999999999999999'", "some"})
    EXPECT_EQ(slots(std::string("nvidia.com/gpu: ") + wrong), "1");
}

TEST(Kubeflow, ANumberOfProcessesThatIsNoneIsNotTaken) {
  json object = yaml(kPyTorch);
  json& pod = object["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"];
  pod["containers"][1]["command"][1] = "--nproc_per_node=99999999999999999999";
  const auto imported = import(KubeflowKind::PyTorchJob, object);
  ASSERT_TRUE(imported) << imported.error().to_string();
  EXPECT_EQ(imported->manifest["spec"]["workers"]["slotsPerWorker"], 8);
}

TEST(Kubeflow, AnotherKindOrNoScriptIsRefused) {
  const auto other = import(KubeflowKind::MPIJob, yaml(kPyTorch));
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("expected MPIJob of kubeflow.org/v2beta1"),
            std::string::npos);
  json object = yaml(kPyTorch);
  json& container =
      object["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][1];
  container["command"] = json::array({"/entrypoint"});
  container.erase("args");
  const auto none = import(KubeflowKind::PyTorchJob, object);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().hint.find("--launcher Command"), std::string::npos);
  const auto kept = import(KubeflowKind::PyTorchJob, object, {.keep_program = true});
  ASSERT_TRUE(kept);
  EXPECT_TRUE(any_contains(kept->left_open, "once per rank"));
}

TEST(Kubeflow, AConfigInTheContainerIsAskedFor) {
  json object = yaml(kPyTorch);
  object["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"].erase("volumes");
  auto imported = import(KubeflowKind::PyTorchJob, object);
  ASSERT_TRUE(imported) << imported.error().to_string();
  const auto done = finish(*imported, {});
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("/etc/ds/zero3.json; give --ds-config FILE"),
            std::string::npos)
      << done.error().message;
}

/// As Hugging Face's Trainer takes it: `--deepspeed '{...}'`.
TEST(Kubeflow, AConfigInTheCommandIsTheJobs) {
  json object = yaml(kPyTorch);
  for (const char* type : {"Master", "Worker"})
    object["spec"]["pytorchReplicaSpecs"][type]["template"]["spec"]["containers"][1]["args"][1] =
        R"({"train_batch_size": 8})";
  auto imported = import(KubeflowKind::PyTorchJob, object);
  ASSERT_TRUE(imported) << imported.error().to_string();
  ASSERT_TRUE(finish(*imported, {})) << finish(*imported, {}).error().to_string();
  EXPECT_EQ(imported->manifest["spec"]["deepspeed"], json({{"config", {{"train_batch_size", 8}}}}));
}

}  // namespace
}  // namespace dsj::jobimport

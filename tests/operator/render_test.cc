// What a pod and its objects are made of.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <set>

#include "job/worker_job.h"
#include "operator/render/render_config.h"
#include "operator/render/render_pod.h"
#include "tests/operator/rendered_pod.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::HasSubstr;

TEST(Render, APodHasWhatTheContractNames) {
  World world;
  const Json pod = pod_of(world, 1);
  const Json& spec = pod["spec"];
  EXPECT_EQ(pod["metadata"]["name"], "j-worker-1-3");
  EXPECT_EQ(spec["hostname"], "j-worker-1");
  EXPECT_EQ(spec["subdomain"], "j-worker");
  EXPECT_EQ(spec["restartPolicy"], "Never");
  EXPECT_EQ(spec["terminationGracePeriodSeconds"], 630);
  EXPECT_EQ(spec["automountServiceAccountToken"], false);
  EXPECT_EQ(pod_of(world, 0)["spec"]["automountServiceAccountToken"], true);
  const Json& container = spec["containers"][0];
  EXPECT_EQ(container["command"], Json({"dsj-agent", "--pod"}));
  EXPECT_EQ(env(container, contract::kEnvWorker), "1");
  EXPECT_EQ(env(container, contract::kEnvIncarnation), "3");
  EXPECT_EQ(env(container, contract::kEnvRevision), world.o.wanted.accepted->revision);
  EXPECT_EQ(env(container, contract::kEnvWorkerZeroHost), "j-worker-0.j-worker.n.svc");
  const Json& owner = pod["metadata"]["ownerReferences"][0];
  EXPECT_EQ(owner["uid"], "job-uid");
  EXPECT_EQ(owner["controller"], true);
  const auto view = pod_view(pod);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->worker, 1);
  EXPECT_EQ(view->incarnation, 3);
  EXPECT_EQ(view->owner_uid, "job-uid");
}

TEST(Render, APodIsNotToldToStopBeforeItsAgentCanHearIt) {
  World world;
  const auto hook = [&](Json pod_spec) {
    if (!pod_spec.is_null()) world.edit("/workers/template", {{"spec", std::move(pod_spec)}});
    return pod_of(world)["spec"]["containers"][0].value("lifecycle", Json());
  };
  EXPECT_EQ(hook({}),
            Json::parse(R"({"preStop": {"exec": {"command": ["dsj-agent", "--await-signals"]}}})"));
  const Json own = {{"postStart", {{"exec", {{"command", {"a"}}}}}},
                    {"preStop", {{"sleep", {{"seconds", 1}}}}}};
  EXPECT_EQ(hook({{"containers", Json::array({{{"name", "worker"}, {"lifecycle", own}}})}}), own);
  for (const char* shared : {"shareProcessNamespace", "hostPID"}) {
    EXPECT_EQ(hook({{shared, true}}), Json()) << "the agent is not process 1: no signal is lost";
  }
}

TEST(Render, TheTokensAudienceIsTheJobsUid) {
  World world;
  bool found = false;
  const Json pod = pod_of(world);
  for (const Json& volume : pod["spec"]["volumes"]) {
    if (volume["name"] != "dsj-token") continue;
    found = true;
    EXPECT_EQ(volume["projected"]["sources"][0]["serviceAccountToken"]["audience"],
              "training.dsj.dev/job/job-uid");
  }
  EXPECT_TRUE(found);
}

TEST(Render, APodPassesPodSecurityRestricted) {
  World world;
  const Json spec = pod_of(world)["spec"];
  EXPECT_EQ(spec["securityContext"]["runAsNonRoot"], true);
  EXPECT_EQ(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
  const Json& security = spec["containers"][0]["securityContext"];
  EXPECT_EQ(security["allowPrivilegeEscalation"], false);
  EXPECT_EQ(security["capabilities"]["drop"], Json::array({"ALL"}));
  EXPECT_EQ(security["readOnlyRootFilesystem"], true);
}

TEST(Render, SecurityContextsAreTheAdministratorsWhereTheTemplateSaysNothing) {
  World world;
  world.o.settings.pod_security = {{"runAsUser", 1000}, {"fsGroup", 7}};
  world.o.settings.container_security = {{"capabilities", {{"drop", Json::array({"NET_RAW"})}}}};
  EXPECT_EQ(pod_of(world)["spec"]["securityContext"], (Json{{"runAsUser", 1000}, {"fsGroup", 7}}));
  EXPECT_EQ(pod_of(world)["spec"]["containers"][0]["securityContext"],
            world.o.settings.container_security);
  world.edit("/workers/template/spec/securityContext", {{"fsGroup", 8}});
  world.edit("/workers/template/spec/containers",
             Json::array({{{"name", "worker"}, {"securityContext", {{"privileged", true}}}}}));
  EXPECT_EQ(pod_of(world)["spec"]["securityContext"], (Json{{"runAsUser", 1000}, {"fsGroup", 8}}));
  EXPECT_EQ(pod_of(world)["spec"]["containers"][0]["securityContext"],
            (Json{{"privileged", true}}));
  world.o.settings.pod_security = {{"runAsNonRoot", true}};
  world.edit("/workers/template/spec/securityContext", {{"runAsUser", 0}});
  EXPECT_EQ(pod_of(world)["spec"]["securityContext"], (Json{{"runAsUser", 0}}));
}

TEST(Render, TheTemplateIsKept) {
  Json spec = quick_spec();
  spec["workers"]["template"] = Json::parse(R"({
    "metadata": {"labels": {"team": "a", "app.kubernetes.io/managed-by": "x"}, "annotations": {"k": "v"}},
    "spec": {"serviceAccountName": "mine", "nodeSelector": {"gpu": "yes"}, "priorityClassName": "high",
      "terminationGracePeriodSeconds": 5,
      "securityContext": {"runAsUser": 7},
      "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
         "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                               {"matchFields": [{"key": "b", "operator": "Exists"}]}]}}},
      "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
      "containers": [{"name": "sidecar", "image": "s"},
        {"name": "worker", "image": "mine:1", "env": [{"name": "A", "value": "b"}],
         "resources": {"limits": {"nvidia.com/gpu": 1}},
         "volumeMounts": [{"name": "data", "mountPath": "/data"},
                          {"name": "data", "mountPath": "/tmp"}]}]}})");
  World world(spec);
  ASSERT_TRUE(world.o.wanted.accepted) << world.o.wanted.message;
  world.settle();
  world.o.job->own_status["failureHistory"] =
      Json::array({{{"reason", "NodeLost"}, {"node", "n9"}}});
  world.o.nodes["n9"] = {.ready = false};
  const Json pod = pod_of(world);
  EXPECT_EQ(pod["metadata"]["labels"]["team"], "a");
  EXPECT_EQ(pod["metadata"]["labels"][contract::kLabelJobName], "j");  // ours wins
  EXPECT_EQ(pod["metadata"]["annotations"]["k"], "v");
  const Json& made = pod["spec"];
  EXPECT_EQ(made["serviceAccountName"], "mine");
  EXPECT_EQ(made["nodeSelector"]["gpu"], "yes");
  EXPECT_EQ(made["priorityClassName"], "high");
  EXPECT_EQ(made["terminationGracePeriodSeconds"], 630);  // enough to save
  EXPECT_EQ(made["securityContext"]["runAsUser"], 7);
  EXPECT_EQ(made["securityContext"]["runAsNonRoot"], true);
  ASSERT_EQ(made["containers"].size(), 2u);
  const Json& container = made["containers"][0];
  EXPECT_EQ(container["name"], "worker");
  EXPECT_EQ(container["image"], "mine:1");
  EXPECT_EQ(env(container, "A"), "b");
  EXPECT_EQ(container["resources"]["limits"]["nvidia.com/gpu"], 1);
  int tmp = 0;
  for (const Json& mount : container["volumeMounts"]) tmp += mount["mountPath"] == "/tmp";
  EXPECT_EQ(tmp, 1);
  for (const Json& term :
       made["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
           ["nodeSelectorTerms"]) {
    EXPECT_EQ(
        term["matchFields"].back(),
        Json({{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", Json::array({"n9"})}}))
        << "by its own name, whatever its label says";
  }
  // The Role is bound to the account that the template names; none is made.
  for (const Create& create : render_config(world.o, *world.o.wanted.accepted)) {
    EXPECT_NE(create.kind, "ServiceAccount");
    if (create.kind != "RoleBinding") continue;
    EXPECT_EQ(create.object["subjects"][0]["name"], "mine");
  }
}

Json command_spec() {
  return Json::parse(R"json({"launcher": "Command",
    "deepspeed": {"config": {"train_micro_batch_size_per_gpu": 1}},
    "training": {"outputDir": "/out"},
    "workers": {"replicas": 2, "template": {"spec": {
      "initContainers": [{"name": "theirs", "image": "t"}],
      "containers": [{"name": "worker", "image": "pytorch:2", "command": ["python", "-u"], "args": ["train.py", "$(A)"],
        "workingDir": "/src", "env": [{"name": "A", "value": "b"}, {"name": "LD_LIBRARY_PATH", "value": "/cuda"}]}]}}}})json");
}

// A cluster may have nodes of several architectures.
TEST(Render, APodGoesToNodesThatRunOurProgramsUnlessItsTemplateNamesAnArchitecture) {
  const auto selector_of = [](const Json& spec) {
    World world;
    world.edit("/workers/template", Json{{"spec", spec}});
    return pod_of(world)["spec"].value("nodeSelector", Json());
  };
  const Json ours = {{"kubernetes.io/arch", "amd64"}, {"kubernetes.io/os", "linux"}};
  EXPECT_EQ(selector_of(Json::object()), ours);
  Json pool = ours;
  pool["pool"] = "gpu";
  EXPECT_EQ(selector_of({{"nodeSelector", {{"pool", "gpu"}}}}), pool);
  EXPECT_EQ(selector_of({{"nodeSelector", {{"kubernetes.io/arch", "arm64"}}}}),
            (Json{{"kubernetes.io/arch", "arm64"}, {"kubernetes.io/os", "linux"}}));
  const auto affinity = [](const char* key) {
    const Json one = {{"key", key}, {"operator", "In"}, {"values", {"arm64"}}};
    const Json term = {{"matchExpressions", Json::array({one})}};
    const Json required = {{"nodeSelectorTerms", Json::array({term})}};
    return Json{
        {"affinity",
         {{"nodeAffinity", {{"requiredDuringSchedulingIgnoredDuringExecution", required}}}}}};
  };
  EXPECT_EQ(selector_of(affinity("kubernetes.io/arch")), (Json{{"kubernetes.io/os", "linux"}}));
  EXPECT_EQ(selector_of(affinity("kubernetes.io/os")), (Json{{"kubernetes.io/arch", "amd64"}}));
  EXPECT_EQ(selector_of(affinity("pool")), ours);
}

TEST(Render, ATemplateThatAsksForTheTokenGetsItOnEachWorker) {
  Json spec = command_spec();
  spec["workers"]["template"]["spec"]["automountServiceAccountToken"] = true;
  World world(spec);
  ASSERT_TRUE(world.o.wanted.accepted) << world.o.wanted.message;
  EXPECT_EQ(pod_of(world, 0)["spec"]["automountServiceAccountToken"], true);
  EXPECT_EQ(pod_of(world, 1)["spec"]["automountServiceAccountToken"], true);
}

/// A LimitRange that takes the worker's container takes it, and a Guaranteed pod stays one.
TEST(Render, TheInitContainerThatBringsTheAgentIsAsLargeAsTheWorkers) {
  Json spec = command_spec();
  spec["workers"]["template"]["spec"]["containers"][0]["resources"] =
      Json::parse(R"({"requests": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": 1},
                      "limits": {"memory": "4Gi", "nvidia.com/gpu": 1}})");
  World world(spec);
  EXPECT_EQ(
      pod_of(world)["spec"]["initContainers"][0]["resources"],
      Json::parse(R"({"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi"}})"));
}

TEST(Render, ScratchIsLimited) {
  World world;
  const auto limit = [&](const char* name) {
    const Json pod = pod_of(world);
    for (const Json& volume : pod["spec"]["volumes"]) {
      if (volume["name"] == name) return volume["emptyDir"].value("sizeLimit", "none");
    }
    return std::string("no such volume");
  };
  EXPECT_EQ(limit("dsj-scratch"), "256Mi");
  EXPECT_EQ(limit("dsj-tmp"), "10Gi");
  EXPECT_EQ(limit("dsj-shm"), "none") << "the container's memory limit holds for it";
  world.o.settings.tmp_size_limit = "1Ti";
  EXPECT_EQ(limit("dsj-tmp"), "1Ti");
  world.o.settings.tmp_size_limit = "0";
  EXPECT_EQ(limit("dsj-tmp"), "none");
}

Json service_selector(World& world) {
  for (const Create& create : render_config(world.o, *world.o.wanted.accepted)) {
    if (create.kind == "Service") return create.object["spec"]["selector"];
  }
  return Json();
}

// 4,096 workers behind one Service are 41 slices of endpoints, written anew as pods come and go.
TEST(Render, OnlyWorkerZeroHasAName) {
  World world;
  const Json zero = pod_of(world, 0)["metadata"]["labels"],
             one = pod_of(world, 1)["metadata"]["labels"];
  const Json selector = service_selector(world);
  const auto selects = [&](const Json& labels) {
    return std::ranges::all_of(selector.items(), [&](const auto& entry) {
      return entry.value() == labels.value(entry.key(), "");
    });
  };
  EXPECT_TRUE(selects(zero));
  EXPECT_FALSE(selects(one));
}

TEST(Render, TheUsersOwnProgramMayLookUpEveryWorker) {
  World world(command_spec());
  ASSERT_TRUE(world.o.wanted.accepted) << world.o.wanted.message;
  EXPECT_EQ(service_selector(world), Json({{contract::kLabelJobName, "j"}}));
}

/// By hand from what docs/cluster.md says.
TEST(Render, AUsersOwnProgramIsEnteredByAnInitContainer) {
  World world(command_spec());
  ASSERT_TRUE(world.o.wanted.accepted) << world.o.wanted.message;
  world.o.settings.worker_image = "registry/dsj-worker:1";
  world.o.settings.image_pull_policy = "IfNotPresent";
  const Json spec = pod_of(world)["spec"];
  ASSERT_EQ(spec["initContainers"].size(), 2u);
  EXPECT_EQ(spec["initContainers"][1]["name"], "theirs");
  EXPECT_EQ(spec["initContainers"][0], Json::parse(R"({
    "name": "dsj-agent", "image": "registry/dsj-worker:1", "imagePullPolicy": "IfNotPresent",
    "command": ["dsj-agent", "--install", "/opt/dsj-agent"],
    "volumeMounts": [{"name": "dsj-agent", "mountPath": "/opt/dsj-agent"}],
    "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                        "capabilities": {"drop": ["ALL"]}}})"));
  const Json& container = spec["containers"][0];
  EXPECT_EQ(container["image"], "pytorch:2");
  EXPECT_EQ(container["workingDir"], "/src");
  EXPECT_EQ(container["command"],
            Json({"/opt/dsj-agent/ld.so", "--inhibit-cache", "--library-path", "/opt/dsj-agent/lib",
                  "/opt/dsj-agent/dsj-agent", "--pod", "--"}));
  EXPECT_EQ(container["lifecycle"]["preStop"]["exec"]["command"],
            Json({"/opt/dsj-agent/ld.so", "--inhibit-cache", "--library-path", "/opt/dsj-agent/lib",
                  "/opt/dsj-agent/dsj-agent", "--await-signals"}));
  EXPECT_EQ(container["args"], Json({"python", "-u", "train.py", "$(A)"}));
  EXPECT_EQ(env(container, "LD_LIBRARY_PATH"), "/cuda") << "the user's own, untouched";
  EXPECT_EQ(env(container, contract::kEnvDsConfig), "/run/dsj/ds_config.json");
  const Json mount = {{"name", "dsj-agent"}, {"mountPath", "/opt/dsj-agent"}, {"readOnly", true}};
  EXPECT_EQ(std::ranges::count(container["volumeMounts"], mount), 1);
  EXPECT_EQ(std::ranges::count(spec["volumes"],
                               Json{{"name", "dsj-agent"}, {"emptyDir", {{"sizeLimit", "256Mi"}}}}),
            1);
  EXPECT_EQ(container["securityContext"]["readOnlyRootFilesystem"], true);
}

TEST(Render, AProgramThatReadsNoDsConfigGetsNone) {
  Json spec = command_spec();
  spec.erase("deepspeed");
  World world(spec);
  ASSERT_TRUE(world.o.wanted.accepted) << world.o.wanted.message;
  EXPECT_EQ(env(pod_of(world)["spec"]["containers"][0], contract::kEnvDsConfig), "");
  const auto objects = render_config(world.o, *world.o.wanted.accepted);
  EXPECT_TRUE(worker_job_from_text(objects[0].object["data"][contract::kWorkerJobFile], ""));
}

TEST(Render, TheConfigMapIsWhatAgentsRead) {
  World world;
  world.o.token_keys = "{\"keys\":[]}";
  const auto objects = render_config(world.o, *world.o.wanted.accepted);
  const Json& map = objects[0].object;
  EXPECT_EQ(map["immutable"], true);
  EXPECT_EQ(map["data"][contract::kTokenKeysFile], "{\"keys\":[]}");
  const auto job = worker_job_from_text(map["data"][contract::kWorkerJobFile], "job.json");
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->replicas, 2);
  EXPECT_EQ(job->job.training.output_dir, "/tmp/out");
  EXPECT_EQ(job->job.world_size, 2);
  // The accepted spec comes back from it as it was.
  const auto again = judge("j", Json::parse(child_view(map).spec_text), std::nullopt, "");
  ASSERT_TRUE(again.accepted);
  EXPECT_EQ(again.accepted->revision, world.o.wanted.accepted->revision);
}

/// Kubernetes counts the values of data and refuses a ConfigMap above 1 MiB; the job would be Pending for ever.
TEST(Render, EveryAcceptedJobFitsIntoItsConfigMap) {
  std::mt19937 random(11);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 40; ++i) {
    Json spec = quick_spec();
    std::string text;
    TemplateText shared;
    const std::string words(300'000 + random() % 500'000, 'x');
    const Json config = {{"train_micro_batch_size_per_gpu", 1},
                         {"tensorboard", {{"enabled", false}, {"job_name", words}}}};
    switch (random() % 3) {
      case 0:
        spec["deepspeed"] = {{"config", config}};
        break;
      case 1:
        spec["deepspeed"] =
            Json::parse(R"({"configFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}})");
        text = config.dump();
        break;
      default:
        shared.name = "t";
        shared.text = jobspec::to_text(
            {"t", 1, {{"metadata", {{"annotations", {{"notes", words + words}}}}}}});
    }
    World world;
    const auto config_text = text.empty() ? std::nullopt : std::optional(text);
    world.o.wanted = judge("j", spec, config_text, "", shared);
    if (!world.o.wanted.accepted) {
      EXPECT_EQ(world.o.wanted.reason, "ConfigInvalid");
      EXPECT_THAT(world.o.wanted.message, ::testing::HasSubstr("expected at most 1015808"));
      ++refused;
      continue;
    }
    ++accepted;
    world.o.token_keys = std::string(random() % 100'000, 'k');
    const auto objects = render_config(world.o, *world.o.wanted.accepted);
    size_t bytes = 0;
    for (const auto& [key, value] : objects[0].object["data"].items())
      bytes += value.get_ref<const std::string&>().size();
    EXPECT_LE(bytes, size_t{1} << 20);
  }
  EXPECT_GT(accepted, 5);
  EXPECT_GT(refused, 5);
}

TEST(Render, TheRoleIsForThisJobOnly) {
  World world;
  for (const Create& create : render_config(world.o, *world.o.wanted.accepted)) {
    if (create.kind != "Role") continue;
    for (const Json& rule : create.object["rules"]) {
      EXPECT_EQ(rule["resourceNames"], Json::array({"j"}));
      EXPECT_EQ(rule["apiGroups"], Json::array({"training.dsj.dev"}));
    }
  }
}

/// By hand from networking.k8s.io/v1: each rule of `ingress` lets in what all its parts hold for.
TEST(Render, OnlyTheJobsOwnPodsAndReadersOfMetricsGetIn) {
  World world;
  Json found;
  for (const Create& create : render_config(world.o, *world.o.wanted.accepted)) {
    if (create.kind == "NetworkPolicy") found = create.object;
  }
  EXPECT_EQ(found["apiVersion"], "networking.k8s.io/v1");
  EXPECT_EQ(found["metadata"]["name"], "j-worker");
  EXPECT_EQ(found["metadata"]["ownerReferences"][0]["uid"], "job-uid");
  EXPECT_EQ(found["spec"], Json::parse(R"({
    "podSelector": {"matchLabels": {"training.dsj.dev/job-name": "j"}},
    "policyTypes": ["Ingress"],
    "ingress": [{"from": [{"podSelector": {"matchLabels": {"training.dsj.dev/job-name": "j"}}}]},
                {"ports": [{"protocol": "TCP", "port": 29401}]}]})"));
  EXPECT_EQ(pod_of(world)["metadata"]["labels"][contract::kLabelJobName], "j");
  world.o.settings.network_policy = false;
  for (const Create& create : render_config(world.o, *world.o.wanted.accepted)) {
    EXPECT_NE(create.kind, "NetworkPolicy");
  }
}

TEST(Render, NumbersOfDsConfigSurvive) {
  Json spec = quick_spec();
  spec["deepspeed"]["config"] = Json::parse(
      R"({"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3, "reduce_bucket_size": 2e8}, "bf16": {"enabled": "auto"},
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-6}}})");
  spec["training"]["learningRate"] = 1e-6;
  World world(spec);
  ASSERT_TRUE(world.o.wanted.accepted) << world.o.wanted.message;
  const auto objects = render_config(world.o, *world.o.wanted.accepted);
  const auto job = worker_job_from_text(objects[0].object["data"][contract::kWorkerJobFile], "");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->job.ds_config, spec["deepspeed"]["config"]);
}

/// Whoever may make a job writes the template: what is accepted of it is rendered, not thrown at.
TEST(Render, NothingInATemplateThrows) {
  const std::vector<Json> values = {nullptr,
                                    true,
                                    -1,
                                    "x",
                                    "",
                                    Json::array(),
                                    Json::object(),
                                    Json::array({nullptr, 3, Json::object()}),
                                    Json::array({{{"name", 5}}}),
                                    {{"name", nullptr}}};
  Json rich = quick_spec();
  rich["workers"]["template"] = Json::parse(R"({
    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {"securityContext": {"fsGroup": 1}, "serviceAccountName": "s",
      "terminationGracePeriodSeconds": 3, "volumes": [{"name": "v"}], "imagePullSecrets": [],
      "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": []}]}}},
      "initContainers": [{"name": "i"}],
      "nodeSelector": {"pool": "gpu"},
      "containers": [{"name": "side"}, {"name": "worker", "image": "i",
        "env": [{"name": "A", "value": "b"}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}], "ports": [],
        "securityContext": {"capabilities": {}}}]}})");
  const Json parts = rich["workers"]["template"].flatten();
  std::set<std::string> places = {"/workers/template"};
  for (const auto& [place, value] : parts.items()) {
    for (std::string at = place; !at.empty(); at.resize(at.rfind('/'))) {
      places.insert("/workers/template" + at);
    }
  }
  int rendered = 0;
  for (const std::string launcher : {"Native", "Command"}) {
    rich["launcher"] = launcher;
    if (launcher == "Command") {
      rich[Json::json_pointer("/workers/template/spec/containers/1/command")] = {"train"};
    }
    for (const std::string& place : places) {
      for (const Json& value : values) {
        Json odd = rich;
        odd[Json::json_pointer(place)] = value;
        World world(odd);
        world.o.nodes["n1"] = {.ready = false};
        if (!world.o.wanted.accepted) continue;
        OwnStatus status = world.status();
        status.failure_history.push_back({{"reason", "NodeLost"}, {"node", "n1"}});
        ASSERT_NO_THROW({
          (void)render_pod(world.o, *world.o.wanted.accepted, status, 0, 1).object.dump();
          (void)render_config(world.o, *world.o.wanted.accepted);
        }) << launcher
           << " " << place << " " << value.dump();
        ++rendered;
      }
    }
  }
  EXPECT_GT(rendered, 100);
}

}  // namespace
}  // namespace dsj::op::testing

// Jobs whose model and data are fetched first: pods, conditions, deadlines, failures.
#include "operator/decide/fetching.h"

#include <gmock/gmock.h>

#include "operator/render/render_pod.h"
#include "tests/operator/rendered_pod.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kSince[] = "2026-01-01T00:00:00Z";

Json fetching_spec(const char* volume = R"({"persistentVolumeClaim": {"claimName": "c"}})",
                   int replicas = 2) {
  Json spec = quick_spec(replicas);
  spec["training"].update({{"modelNameOrPath", "/data/m"}, {"dataPath", "/data/d.json"}});
  spec["workers"]["template"] = Json::parse(R"({"spec": {
    "initContainers": [{"name": "mine", "image": "i"}],
    "containers": [{"name": "worker", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}})");
  Json data = Json::parse(volume);
  data["name"] = "data";
  spec["workers"]["template"]["spec"]["volumes"] = Json::array({std::move(data)});
  spec["initializers"]["model"] = {{"storageUri", "hf://org/m"}, {"image", "hub"}};
  spec["initializers"]["dataset"] = {{"storageUri", "s3://b/d.json"}, {"image", "s3"}};
  return spec;
}

Json status_of(const char* name, Json state) {
  return {{"name", name}, {"state", std::move(state)}};
}

Json ended_with(int code, const char* message = "", const char* reason = "Error") {
  return {{"terminated",
           {{"exitCode", code}, {"reason", reason}, {"message", message}, {"finishedAt", kSince}}}};
}

/// The kubelet's word on a pod of `world`: `inits` are its initContainerStatuses.
void tell(World& world, int worker, const char* phase, Json inits) {
  PodView& pod = world.pod(worker);
  Json object = render_pod(world.o, *world.o.wanted.accepted, world.status(), worker,
                           pod.incarnation, {}, {.run = pod.run, .authority = pod.authority})
                    .object;
  object["metadata"].update({{"name", pod.name}, {"uid", pod.uid}});
  object["metadata"]["annotations"][contract::kAnnotationRestarts] = std::to_string(pod.restarts);
  object["spec"]["nodeName"] = "node-" + std::to_string(worker);
  object["status"] = {
      {"phase", phase},
      {"initContainerStatuses", std::move(inits)},
      {"containerStatuses",
       Json::array({status_of("worker", {{"waiting", {{"reason", "PodInitializing"}}}})})}};
  pod = *pod_view(object);
}

void fetch(World& world, int worker = 0) {
  tell(world, worker, "Pending",
       Json::array(
           {status_of("initialize-model", {{"running", {{"startedAt", kSince}}}}),
            status_of("initialize-dataset", {{"waiting", {{"reason", "PodInitializing"}}}})}));
  world.settle();
}

void fail_fetch(World& world, int code) {
  tell(world, 0, "Failed",
       Json::array({status_of("initialize-model", ended_with(code, "no such model"))}));
  world.settle();
}

/// Worker 1 waits in a running pod, worker 0 fetches.
World fetching_world(Json spec = fetching_spec()) {
  World world(std::move(spec));
  world.settle();
  world.run_pods();
  fetch(world);
  return world;
}

std::vector<std::string> inits_of(const Json& pod) {
  std::vector<std::string> names;
  for (const Json& init : pod["spec"].value("initContainers", Json::array()))
    names.push_back(init["name"]);
  return names;
}

TEST(FetchingPods, WorkerZeroFetchesToASharedVolume) {
  World world(fetching_spec());
  const auto pod = [&](int worker) {
    return render_pod(world.o, *world.o.wanted.accepted, world.status(), worker, 1).object;
  };
  EXPECT_THAT(inits_of(pod(0)),
              ::testing::ElementsAre("mine", "initialize-model", "initialize-dataset"));
  EXPECT_THAT(inits_of(pod(1)), ::testing::ElementsAre("mine"));
  const Json model = pod(0)["spec"]["initContainers"][1];
  EXPECT_EQ(model["securityContext"]["readOnlyRootFilesystem"], true);
  EXPECT_EQ(model["securityContext"]["allowPrivilegeEscalation"], false);
  EXPECT_EQ(model["volumeMounts"][1]["mountPath"], "/tmp");
  EXPECT_EQ(model["volumeMounts"][2]["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
  EXPECT_EQ(model["env"][0], Json({{"name", "STAGING"}, {"value", "/data/.m.staging-0"}}));
}

TEST(FetchingPods, EachFetchesToAVolumeOfItsOwn) {
  World world(fetching_spec(R"({"emptyDir": {}})"));
  const Json pod = render_pod(world.o, *world.o.wanted.accepted, world.status(), 1, 1).object;
  EXPECT_EQ(inits_of(pod).size(), 3u);
  EXPECT_EQ(pod["spec"]["initContainers"][1]["env"][0]["value"], "/data/.m.staging-1");
  world.settle();
  fetch(world, 0);
  fetch(world, 1);
  EXPECT_THAT(world.message("DataReady"), HasSubstr("; 2 workers fetch"));
  world.pod(0).phase = PodView::Phase::Running;
  world.pod(0).waiting_reason.clear();
  world.settle();
  EXPECT_THAT(world.message("DataReady"), HasSubstr("worker 1 fetches model"));
}

TEST(FetchingPods, WithoutAnImageItIsTheWorkers) {
  Json spec = fetching_spec();
  spec["initializers"]["model"].erase("image");
  World world(spec);
  world.o.settings.worker_image = "ours:1";
  world.o.settings.image_pull_policy = "Never";
  Json init = pod_of(world)["spec"]["initContainers"][1];
  EXPECT_EQ(init["image"], "ours:1");
  EXPECT_EQ(init["imagePullPolicy"], "Never");
  EXPECT_EQ(pod_of(world)["spec"]["initContainers"][2]["image"], "s3");
  world.edit("/workers/template/spec/containers/0/image", "theirs:1");
  init = pod_of(world)["spec"]["initContainers"][1];
  EXPECT_EQ(init["image"], "theirs:1");
  EXPECT_FALSE(init.contains("imagePullPolicy"));
}

TEST(FetchingPods, AnotherSourceIsAnotherRevision) {
  World world(fetching_spec());
  const std::string before = world.o.wanted.accepted->revision;
  world.edit("/initializers/model/storageUri", "hf://org/other");
  EXPECT_NE(world.o.wanted.accepted->revision, before);
}

TEST(Fetching, TheStatusSaysWhatRunsSinceWhen) {
  World world = fetching_world();
  EXPECT_EQ(world.phase(), "Starting");
  EXPECT_EQ(world.condition("DataReady"), "False Fetching");
  EXPECT_EQ(world.message("DataReady"),
            "worker 0 fetches model since " + std::string(kSince) + ", 1 of 2");
  EXPECT_EQ(world.condition("Initialized"), "False Initializing");
  EXPECT_EQ(world.status().reason, "Initializing");
  tell(world, 0, "Pending",
       Json::array(
           {status_of("initialize-model", ended_with(0)),
            status_of("initialize-dataset", {{"waiting", {{"reason", "PodInitializing"}}}})}));
  world.settle();
  EXPECT_THAT(world.message("DataReady"), HasSubstr("dataset since 2026-01-01T00:00:00Z, 2 of 2"));
  world.start_attempt();
  world.pod(0).waiting_reason.clear();
  world.settle();
  EXPECT_EQ(world.condition("DataReady"), "True Fetched");
  EXPECT_EQ(world.phase(), "Running");
}

TEST(Fetching, AnImageThatCannotBePulledIsSaid) {
  World world = fetching_world();
  tell(world, 0, "Pending",
       Json::array(
           {status_of("initialize-model", {{"waiting", {{"reason", "ImagePullBackOff"}}}})}));
  world.settle();
  EXPECT_EQ(world.condition("Initialized"), "False ImagePullBackOff");
  EXPECT_EQ(world.condition("DataReady"), "Unknown Waiting");
}

TEST(Fetching, IsNoLostTime) {
  Json spec = fetching_spec();
  spec["runPolicy"] = {{"startupDeadlineSeconds", 60}, {"recoveryDeadlineSeconds", 100}};
  World world = fetching_world(spec);
  world.now += Seconds(5000);
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "False NotFinished");
  EXPECT_EQ(world.status().restarts.total, 0) << "nobody gave his node back";
  world.run_pods();
  world.pod(0).waiting_reason.clear();
  world.settle();
  world.now += Seconds(59);
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "False NotFinished");
  const Plan plan = world.pass();
  ASSERT_TRUE(plan.again);
  world.now = *plan.again;
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "True StartupDeadlineExceeded");
  EXPECT_THAT(world.message("Failed"), HasSubstr("60 s after data was fetched"));
}

TEST(Fetching, ActiveDeadlineBoundsIt) {
  Json spec = fetching_spec();
  spec["runPolicy"]["activeDeadlineSeconds"] = 100;
  World world = fetching_world(spec);
  world.now += Seconds(100);
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "True DeadlineExceeded");
  EXPECT_EQ(world.condition("DataReady"), "Unknown Waiting");
}

TEST(Fetching, AFailureIsChargedOnceAndTriedAgain) {
  World world = fetching_world();
  fail_fetch(world, 1);
  EXPECT_EQ(world.status().restarts.counted, 1);
  const Json failure = world.status().last_failure;
  EXPECT_EQ(failure["reason"], "InitializerFailed");
  EXPECT_EQ(failure["exitCode"], 1);
  EXPECT_EQ(failure["lastWords"], "no such model");
  EXPECT_EQ(failure["message"], "initializer model ended with exit code 1");
  EXPECT_EQ(world.condition("DataReady"), "Unknown Waiting");
  EXPECT_EQ(world.pod(0).incarnation, 2);
  EXPECT_EQ(world.pod(1).incarnation, 1) << "it goes on waiting";
  for (int code : {86, 87, 137}) {  // an agent's codes mean nothing here
    fetch(world);
    world.now += Seconds(100);
    fail_fetch(world, code);
    world.now += Seconds(100);
    world.settle();
  }
  EXPECT_EQ(world.condition("Failed"), "True BackoffLimitExceeded");
}

TEST(Fetching, InputThatIsWrongEndsTheJob) {
  World world = fetching_world();
  fail_fetch(world, contract::kExitBadInput);
  EXPECT_EQ(world.condition("Failed"), "True InitializerFailed");
}

TEST(Fetching, ARuleMayDecideByTheReason) {
  Json spec = fetching_spec();
  spec["failurePolicy"]["rules"] =
      Json::parse(R"([{"action": "FailJob", "onReasons": ["InitializerFailed"]}])");
  World world = fetching_world(spec);
  fail_fetch(world, 1);
  EXPECT_EQ(world.condition("Failed"), "True FailurePolicy");
}

/// Its pod is older than the restart of a worker that gave up waiting, and is charged all the same.
TEST(Fetching, WhoGaveUpWaitingIsAVictim) {
  World world = fetching_world();
  world.end(world.pod(1), contract::kExitPeerLost, "PeerLost");
  world.pod(1).termination->attempt.reset();
  world.settle();
  EXPECT_EQ(world.status().restarts.counted, 0);
  EXPECT_EQ(world.status().restarts.total, 1);
  EXPECT_EQ(world.pod(0).incarnation, 1) << "it goes on fetching";
  fail_fetch(world, 1);
  EXPECT_EQ(world.status().restarts.counted, 1);
  world.settle();
  EXPECT_EQ(world.status().restarts.counted, 1);
}

TEST(Fetching, ADeletedPodIsNotCharged) {
  World world = fetching_world();
  tell(world, 0, "Failed", Json::array({status_of("initialize-model", ended_with(143))}));
  world.pod(0).deleting_from = world.now;
  world.settle();
  EXPECT_EQ(world.status().restarts.counted, 0);
}

TEST(Fetching, AJobWithoutInitializersSaysNothing) {
  World world;
  world.to_running();
  EXPECT_EQ(world.condition("DataReady"), "");
}

}  // namespace
}  // namespace dsj::op::testing

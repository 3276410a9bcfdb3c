// Situations that users of other operators reported, each put to this one. The comment names the public thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::HasSubstr;

Json worker_status(Json state, const char* phase = "Failed") {
  return {{"phase", phase},
          {"containerStatuses", Json::array({{{"name", "worker"}, {"state", std::move(state)}}})}};
}

int live_pods(const World& world, int worker) {
  return static_cast<int>(std::ranges::count_if(world.o.pods, [&](const PodView& pod) {
    return pod.worker == worker && !pod.ended();
  }));
}

/// kubernetes-sigs/kueue 15424: a pod that still ends on its node counts in its group, and Kueue deletes the surplus.
TEST(MetByUsers, APodThatEndsOnItsNodeHasNoSuccessorBesideIt) {
  World world;
  world.to_running();
  world.pod(1).deleting_from = world.now + Seconds(600);
  world.settle();
  EXPECT_EQ(live_pods(world, 1), 1);
  world.reap();
  world.settle();
  EXPECT_EQ(live_pods(world, 1), 1);
  EXPECT_GT(world.pod(1).incarnation, 1);
}

/// kubeflow/trainer 3995: the number of nodes of a suspended job.
TEST(MetByUsers, ASuspendedJobIsScaledAndResumesWithTheNewSize) {
  World world;
  world.to_running();
  world.edit("/suspend", true);
  world.o.job->agent.stop_step = world.o.job->agent.saved_step = 8;
  world.settle();
  world.reap();
  world.settle();
  ASSERT_EQ(world.condition("Suspended"), "True Suspended");
  world.edit("/workers/replicas", 3);
  world.settle();
  EXPECT_TRUE(world.o.pods.empty());
  EXPECT_EQ(world.condition("Suspended"), "True Suspended");
  world.edit("/suspend", false);
  world.settle();
  EXPECT_EQ(world.o.pods.size(), 3u);
  world.start_attempt();
  EXPECT_EQ(world.status().workers, "3/3");
}

/// kubeflow/trainer 3008: a resume right behind the suspension, while ranks still save.
TEST(MetByUsers, AResumeBeforeTheRanksHaveSavedLosesNothing) {
  World world;
  world.to_running();
  world.edit("/suspend", true);
  world.settle();
  EXPECT_EQ(world.condition("Suspended"), "False Suspending");
  world.edit("/suspend", false);
  world.settle();
  for (int worker = 0; worker < 2; ++worker) {
    EXPECT_EQ(live_pods(world, worker), 1);
    EXPECT_FALSE(world.pod(worker).deleting_from);
  }
  // The ranks had been told: they save, and their agents end.
  world.end_all(contract::kExitPreempted, contract::kReasonPreempted, 5);
  world.settle();
  world.now += Seconds(5);
  world.settle();
  EXPECT_EQ(live_pods(world, 0), 1);
  EXPECT_EQ(world.status().restarts.counted, 0);
}

/// kubeflow/mpi-operator 312: cleanPodPolicy Running took the pod with the OOMKilled worker's log.
TEST(MetByUsers, CleanPodPolicyRunningKeepsAPodThatFailed) {
  Json spec = quick_spec();
  spec["runPolicy"]["cleanPodPolicy"] = "Running";
  spec["backoffLimit"] = 0;
  World world(spec);
  world.to_running();
  world.kubelet_says(world.pod(1), worker_status({{"terminated",
                                                   {{"exitCode", 137}, {"reason", "OOMKilled"}}}}));
  world.settle();
  ASSERT_EQ(world.phase(), "Failed");
  world.reap();
  world.settle();
  ASSERT_EQ(world.o.pods.size(), 1u);
  EXPECT_EQ(world.o.pods[0].worker, 1);
}

/// kubeflow/mpi-operator 647: one worker is evicted, the job fails, and the others run on.
TEST(MetByUsers, AnEvictedWorkerEndsNeitherTheJobNorLeavesOthersBehind) {
  Json spec = quick_spec(3);
  World world(spec);
  world.to_running();
  Json status = worker_status({{"terminated", {{"exitCode", 137}, {"reason", "Error"}}}});
  status["reason"] = "Evicted";
  status["conditions"] = Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}});
  world.kubelet_says(world.pod(2), status);
  world.settle();
  EXPECT_EQ(live_pods(world, 2), 1);
  EXPECT_EQ(world.status().restarts.counted, 0);
  world.edit("/runPolicy/activeDeadlineSeconds", 1);
  world.now += Seconds(60);
  world.settle();
  world.reap();
  world.settle();
  EXPECT_EQ(world.phase(), "Failed");
  for (int worker = 0; worker < 3; ++worker) EXPECT_EQ(live_pods(world, worker), 0);
}

/// kubeflow/mpi-operator 643: cleanPodPolicy All leaves the launcher.
TEST(MetByUsers, CleanPodPolicyAllMeansWorkerZeroToo) {
  Json spec = quick_spec();
  spec["runPolicy"]["cleanPodPolicy"] = "All";
  World world(spec);
  world.to_running();
  world.end_all(contract::kExitDone, contract::kReasonCompleted, 10);
  world.settle();
  world.reap();
  EXPECT_EQ(world.phase(), "Complete");
  EXPECT_TRUE(world.o.pods.empty());
}

/// kubernetes-sigs/jobset 408: a host name beyond 63 characters, of pods that can never be made.
TEST(MetByUsers, ANameThatIsTooLongForItsPodsIsRefusedAtOnce) {
  EXPECT_TRUE(judge("tune", quick_spec(2), std::nullopt, "").accepted);
  for (const int replicas : {2, 200}) {
    const Verdict verdict =
        judge(std::string(63, 'a'), quick_spec(replicas), std::nullopt, "");
    ASSERT_FALSE(verdict.accepted) << replicas;
    EXPECT_THAT(verdict.message, HasSubstr("name"));
  }
}

/// kubeflow/trainer 2001: an image that cannot be pulled keeps the job Created; the deadline ends it, and says why.
TEST(MetByUsers, TheStartupDeadlineNamesWhatKeptThePods) {
  Json spec = quick_spec();
  spec["runPolicy"]["startupDeadlineSeconds"] = 300;
  World world(spec);
  world.settle();
  world.run_pods();
  world.kubelet_says(
      world.pod(1),
      worker_status({{"waiting",
                      {{"reason", "ImagePullBackOff"}, {"message", "Back-off pulling image x"}}}},
                    "Pending"));
  world.settle();
  world.now += Seconds(301);
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "True StartupDeadlineExceeded");
  EXPECT_THAT(world.message("Failed"), HasSubstr("worker 1 cannot start: ImagePullBackOff"));
}

/// kubernetes-sigs/kueue 1641 and 10407: Kueue deletes the pods of a group that it evicts; who made them makes them again.
TEST(MetByUsers, AGangThatAQueueTookComesAgainUncharged) {
  Json spec = quick_spec();
  spec["backoffLimit"] = 0;
  World world(spec);
  world.to_running();
  for (int worker = 0; worker < 2; ++worker) {
    Json status = worker_status({{"terminated", {{"exitCode", 143}, {"reason", "Error"}}}});
    status["conditions"] = Json::array({{{"type", "TerminationTarget"}, {"status", "True"}}});
    world.pod(worker).deleting_from = world.now;
    world.kubelet_says(world.pod(worker), status);
  }
  world.settle();
  world.reap();
  world.now += Seconds(10);
  world.settle();
  EXPECT_NE(world.phase(), "Failed") << world.o.job->own_status.dump(1);
  EXPECT_EQ(live_pods(world, 0), 1);
  EXPECT_EQ(live_pods(world, 1), 1);
}

/// ray-project/kuberay 4824 and 1902: the first pod is evicted, and the job begins anew or fails.
TEST(MetByUsers, AnEvictedWorkerZeroIsReplacedAndTheOthersStay) {
  World world;
  world.to_running();
  Json status = worker_status({{"terminated", {{"exitCode", 137}, {"reason", "Error"}}}});
  status["conditions"] = Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}});
  world.kubelet_says(world.pod(0), status);
  world.settle();
  EXPECT_EQ(world.pod(0).incarnation, 2);
  EXPECT_EQ(world.pod(1).incarnation, 1);
  EXPECT_EQ(world.status().restarts.counted, 0);
  EXPECT_EQ(world.status().restarts.total, 1);
}

/// ray-project/kuberay 3860: what watches a job ends with 0 though the job has not; no such word completes ours.
TEST(MetByUsers, AZeroWithoutTheAgentsWordCompletesNothing) {
  World world;
  world.to_running();
  for (int worker = 0; worker < 2; ++worker)
    world.kubelet_says(
        world.pod(worker),
        worker_status({{"terminated", {{"exitCode", 0}, {"reason", "Completed"}}}}, "Succeeded"));
  world.settle();
  EXPECT_NE(world.phase(), "Complete");
}

/// kubernetes/kubernetes: a node loses power and comes back; its kubelet has no word for what it finds.
struct Unseen {
  int exit_code;
  const char* reason;
};
constexpr Unseen kUnseen[] = {{255, "Unknown"}, {137, "ContainerStatusUnknown"}};

TEST(MetByUsers, ARebootThatNobodySawIsNotCharged) {
  for (const auto& [code, reason] : kUnseen) {
    Json spec = quick_spec();
    spec["backoffLimit"] = 0;
    World world(spec);
    world.to_running();
    world.kubelet_says(world.pod(1),
                       worker_status({{"terminated", {{"exitCode", code}, {"reason", reason}}}}));
    world.settle();
    EXPECT_NE(world.phase(), "Failed") << reason;
    EXPECT_EQ(live_pods(world, 1), 1) << reason;
    EXPECT_EQ(world.status().restarts.counted, 0) << reason;
  }
}

/// Only a kubelet can say so: an agent's or a rank's own words, and other ends, are charged as ever.
TEST(MetByUsers, OnlyAKubeletsWordMakesAnEndUnseen) {
  std::mt19937 random(1);
  const char* reasons[] = {"Unknown", "ContainerStatusUnknown", "Error", "OOMKilled", "StartError"};
  for (int i = 0; i < 400; ++i) {
    const char* reason = reasons[random() % std::size(reasons)];
    const int code = std::array{1, 2, 137, 139, 255}[random() % 5];
    const bool agent_spoke = random() % 2 == 0;
    Json terminated = {{"exitCode", code}, {"reason", reason}};
    if (agent_spoke)
      terminated["message"] =
          Json({{"reason", reason}, {"message", "m"}, {"attempt", 1}, {"step", 3}}).dump();
    World world;
    world.to_running();
    world.kubelet_says(world.pod(1), worker_status({{"terminated", terminated}}));
    const bool kubelets = !agent_spoke && (std::string(reason) == "ContainerStatusUnknown" ||
                                           (std::string(reason) == "Unknown" && code == 255));
    EXPECT_EQ(ended_unseen(world.pod(1)), kubelets) << reason << code << agent_spoke;
    world.settle();
    const bool counted = world.status().restarts.counted > 0 || world.phase() == "Failed";
    EXPECT_NE(counted, kubelets) << reason << " " << code << " " << agent_spoke;
  }
}

/// A node that reboots again and again: no charge, and pauses that grow.
TEST(MetByUsers, RebootsInARowHavePausesThatGrow) {
  World world;
  world.to_running();
  Seconds longest{0};
  for (int i = 0; i < 12; ++i) {
    world.kubelet_says(
        world.pod(1),
        worker_status({{"terminated", {{"exitCode", 255}, {"reason", "Unknown"}}}}));
    const Time from = world.now;
    world.settle();
    while (live_pods(world, 1) == 0 && world.now < from + Seconds(1000)) {
      world.now += Seconds(1);
      world.settle();
    }
    longest = std::max(longest, std::chrono::duration_cast<Seconds>(world.now - from));
    world.start_attempt();
  }
  EXPECT_EQ(world.status().restarts.counted, 0);
  EXPECT_GE(longest, Seconds(120));
  EXPECT_LE(longest, Seconds(300));
}

/// kubernetes 1.35: a sidecar's rule that restarts the whole pod in place.
TEST(MetByUsers, ASidecarThatWouldRestartTheAgentIsRefused) {
  const auto with = [](const char* list, const char* action) {
    Json spec = quick_spec();
    Json& pod = spec["workers"]["template"]["spec"];
    pod["containers"] = Json::array({{{"name", "worker"}}});
    Json other = {{"name", "proxy"},
                  {"image", "i"},
                  {"restartPolicy", "Never"},
                  {"restartPolicyRules",
                   Json::array({{{"action", action},
                                 {"exitCodes", {{"operator", "In"}, {"values", {1}}}}}})}};
    if (std::string(list) == "containers") {
      pod["containers"].push_back(other);
    } else {
      pod["initContainers"] = Json::array({other});
    }
    return judge("j", spec, std::nullopt, "");
  };
  for (const char* list : {"containers", "initContainers"}) {
    EXPECT_TRUE(with(list, "Restart").accepted) << with(list, "Restart").message;
    const Verdict verdict = with(list, "RestartAllContainers");
    EXPECT_FALSE(verdict.accepted) << list;
    EXPECT_THAT(verdict.message, HasSubstr(std::string(list) + "[proxy].restartPolicyRules"));
  }
}

/// kubernetes-sigs/kueue 12656: a group whose replacements do not come holds its quota. Ours come, or its pods go.
TEST(MetByUsers, NoFailedGangHoldsAQueuesQuota) {
  Json spec = quick_spec();
  spec["runPolicy"]["schedulingPolicy"] = {{"scheduler", "kueue"}, {"queue", "q"}};
  spec["backoffLimit"] = 0;
  World world(spec);
  world.o.settings.kueue = true;
  world.to_running();
  for (PodView& pod : world.o.pods) pod.finalizers = {"kueue.x-k8s.io/managed"};
  world.kubelet_says(world.pod(1),
                     worker_status({{"terminated", {{"exitCode", 1}, {"reason", "Error"}}}}));
  world.pod(1).finalizers = {"kueue.x-k8s.io/managed"};
  world.settle();
  ASSERT_EQ(world.phase(), "Failed");
  ASSERT_TRUE(world.pod(0).deleting_from);
  world.end(world.pod(0), contract::kExitPreempted, contract::kReasonPreempted, 3);
  world.settle();
  // So Kueue finishes the group, and takes its finalizers off.
  for (const PodView& pod : world.o.pods) EXPECT_TRUE(pod.group_over) << pod.name;
}

/// velero-io/velero 8884: a backup is restored in another cluster, with the status and without pods.
TEST(MetByUsers, AJobThatIsRestoredWithItsStatusTrainsOn) {
  for (const bool same_generation : {true, false}) {
    World before;
    before.to_running();
    World world;
    world.o.job->own_status = before.o.job->own_status;
    if (!same_generation) world.o.job->own_status["observedGeneration"] = 7;
    world.o.job->agent.attempt = before.o.job->agent.attempt;
    world.settle();
    world.now += Seconds(600);
    world.settle();
    ASSERT_EQ(world.o.pods.size(), 2u);
    for (const PodView& pod : world.o.pods) EXPECT_GT(pod.incarnation, 1) << pod.name;
    EXPECT_FALSE(world.o.children.empty());
    world.start_attempt();
    EXPECT_EQ(world.phase(), "Running") << world.o.job->own_status.dump(1);
  }
}

}  // namespace
}  // namespace dsj::op::testing

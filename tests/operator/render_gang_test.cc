// Scheduling groups: what is rendered against fixtures by hand from what Volcano and Kueue read,
// and which group a pod is in over the life of a job.
#include "operator/render/render_gang.h"

#include <gmock/gmock.h>

#include "operator/render/render_pod.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::HasSubstr;

Json with(Json policy, int replicas = 2) {
  Json spec = quick_spec(replicas);
  spec["runPolicy"]["schedulingPolicy"] = std::move(policy);
  return spec;
}
std::vector<std::string> groups(const World& world) {
  std::vector<std::string> names;
  for (const ChildView& child : world.o.children) {
    if (child.kind == "PodGroup") names.push_back(child.name);
  }
  return names;
}
std::set<std::string> gangs_of_living(const World& world) {
  std::set<std::string> gangs;
  for (const PodView& pod : world.o.pods) {
    if (!pod.ended()) gangs.insert(pod.gang);
  }
  return gangs;
}

TEST(Gang, AsVolcanoReadsIt) {
  World world(
      with({{"scheduler", "volcano"}, {"queue", "research"}, {"priorityClass", "high"}}, 3));
  ASSERT_TRUE(world.o.wanted.accepted) << world.o.wanted.message;
  const auto group = render_gang(*world.o.job, *world.o.wanted.accepted, "j-volcano-1");
  ASSERT_TRUE(group);
  EXPECT_EQ(group->object, Json::parse(R"({
    "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
    "metadata": {"name": "j-volcano-1", "namespace": "n",
      "labels": {"training.dsj.dev/job-name": "j", "app.kubernetes.io/managed-by": "dsj-operator",
                 "training.dsj.dev/gang": "j-volcano-1"},
      "ownerReferences": [{"apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob", "name": "j",
                           "uid": "job-uid", "controller": true, "blockOwnerDeletion": true}]},
    "spec": {"minMember": 3, "queue": "research", "priorityClassName": "high"}})"));
  const Json pod =
      render_pod(world.o, *world.o.wanted.accepted, world.status(), 1, 1, "j-volcano-1").object;
  EXPECT_EQ(pod["spec"]["schedulerName"], "volcano");
  EXPECT_EQ(pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "j-volcano-1");
  EXPECT_FALSE(pod["spec"].contains("priorityClassName")) << "the template's own";
}

TEST(Gang, AsVolcanoReadsItWithNothingButItsName) {
  World world(with({{"scheduler", "volcano"}, {"minAvailable", 1}}));
  ASSERT_TRUE(world.o.wanted.accepted) << world.o.wanted.message;
  const auto group = render_gang(*world.o.job, *world.o.wanted.accepted, "g");
  EXPECT_EQ(group->object["spec"], Json({{"minMember", 1}}));
}

TEST(Gang, AsKueueReadsIt) {
  Json spec = with({{"scheduler", "kueue"}, {"queue", "team-a"}, {"priorityClass", "batch"}}, 3);
  spec["workers"]["template"] = Json::parse(
      R"({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other", "own": "x"}, "annotations": {"a": "b"}}})");
  World world(spec);
  ASSERT_TRUE(world.o.wanted.accepted) << world.o.wanted.message;
  EXPECT_FALSE(render_gang(*world.o.job, *world.o.wanted.accepted, "j-kueue-1"))
      << "Kueue makes its own";
  world.o.job->own_status["failureHistory"] =
      Json::array({{{"reason", "NodeLost"}, {"node", "n9"}}});
  const Json pod =
      render_pod(world.o, *world.o.wanted.accepted, world.status(), 1, 4, "j-kueue-1").object;
  const Json& labels = pod["metadata"]["labels"];
  EXPECT_EQ(labels["kueue.x-k8s.io/queue-name"], "team-a");
  EXPECT_EQ(labels["kueue.x-k8s.io/pod-group-name"], "j-kueue-1");
  EXPECT_EQ(labels["kueue.x-k8s.io/priority-class"], "batch");
  EXPECT_EQ(labels["own"], "x");
  EXPECT_EQ(pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"], "3");
  EXPECT_FALSE(pod["spec"].contains("schedulerName")) << "the cluster's own, behind Kueue's gate";
  EXPECT_FALSE(pod["spec"].contains("affinity")) << "of the shape that was admitted";
}

TEST(Gang, WithoutAPolicyThereIsNone) {
  World world;
  world.to_running();
  EXPECT_TRUE(groups(world).empty());
  EXPECT_EQ(gangs_of_living(world), std::set<std::string>{""});
}

TEST(Gang, AReplacedPodJoinsItsRunsGroupAndANewRunHasANewOne) {
  World world(with({{"scheduler", "volcano"}}));
  world.to_running();
  EXPECT_EQ(gangs_of_living(world), std::set<std::string>{"j-volcano-1"});
  EXPECT_EQ(groups(world), std::vector<std::string>{"j-volcano-1"});
  world.end(world.pod(1), contract::kExitFailed, "RankFailed");
  world.now += Seconds(60);
  world.settle();
  world.now += Seconds(60);
  world.settle();
  EXPECT_EQ(world.pod(1).incarnation, 2);
  EXPECT_EQ(gangs_of_living(world), std::set<std::string>{"j-volcano-1"});
  world.start_attempt();
  // A policy that is edited is the next run's.
  world.edit("/runPolicy/schedulingPolicy/queue", "other");
  world.settle();
  EXPECT_EQ(groups(world), std::vector<std::string>{"j-volcano-1"});
  world.edit("/suspend", true);
  world.o.job->agent.stop_step = world.o.job->agent.saved_step = 8;
  world.settle();
  world.reap();
  world.settle();
  EXPECT_TRUE(groups(world).empty()) << "nothing of it holds a queue while the job is suspended";
  world.edit("/suspend", false);
  world.settle();
  EXPECT_EQ(gangs_of_living(world), std::set<std::string>{"j-volcano-3"});
  EXPECT_EQ(groups(world), std::vector<std::string>{"j-volcano-3"});
  world.start_attempt();
  world.end_all(contract::kExitDone, contract::kReasonCompleted, 10);
  world.settle();
  EXPECT_EQ(world.phase(), "Complete");
  EXPECT_TRUE(groups(world).empty());
}

TEST(Gang, AnotherWorldSizeIsAnotherGroup) {
  World world(with({{"scheduler", "volcano"}}));
  world.to_running();
  world.edit("/workers/replicas", 3);
  world.o.job->agent.stop_step = world.o.job->agent.saved_step = 8;
  world.settle();
  world.reap();
  world.settle();
  EXPECT_EQ(gangs_of_living(world), std::set<std::string>{"j-volcano-2"});
  EXPECT_EQ(groups(world), std::vector<std::string>{"j-volcano-2"});
}

/// A group of two would wait for ever for the second pod.
TEST(Gang, APolicyThatComesLaterDoesNotSplitARun) {
  World world;
  world.to_running();
  world.edit("/runPolicy/schedulingPolicy", {{"scheduler", "volcano"}});
  world.settle();
  EXPECT_TRUE(groups(world).empty());
  world.end(world.pod(1), contract::kExitFailed, "RankFailed");
  world.settle();
  world.now += Seconds(60);
  world.settle();
  EXPECT_EQ(world.pod(1).incarnation, 2);
  EXPECT_EQ(gangs_of_living(world), std::set<std::string>{""});
}

TEST(Gang, WhatIsRefusedSaysWhy) {
  struct Case {
    Json policy;
    std::string reason, says;
  };
  const std::vector<Case> cases = {
      {Json::object(), "ConfigInvalid", "schedulingPolicy.scheduler: a field is missing"},
      {{{"scheduler", "slurm"}}, "ConfigInvalid", "schedulingPolicy.scheduler"},
      {{{"scheduler", "scheduler-plugins"}}, "Unsupported", "have neither queues nor priorities"},
      {{{"scheduler", "kueue"}}, "ConfigInvalid", "schedulingPolicy.queue: a field is missing"},
      {{{"scheduler", "kueue"}, {"queue", "q"}, {"minAvailable", 1}},
       "Unsupported",
       "admits all pods or none"},
      {{{"scheduler", "volcano"}, {"minAvailable", 3}}, "ConfigInvalid", "3 of 2 workers"},
      {{{"scheduler", "volcano"}, {"queue", "No Name"}},
       "ConfigInvalid",
       "expected the name of an object"},
      {{{"scheduler", "volcano"}, {"scheduleTimeoutSeconds", 60}},
       "Unsupported",
       "startupDeadlineSeconds"},
      {{{"scheduler", "volcano"}, {"queu", "q"}}, "ConfigInvalid", "did you mean \"queue\"?"},
  };
  for (const Case& one : cases) {
    const Verdict verdict = judge("j", with(one.policy), std::nullopt, "");
    EXPECT_FALSE(verdict.accepted) << one.policy;
    EXPECT_EQ(verdict.reason, one.reason) << verdict.message;
    EXPECT_THAT(verdict.message, HasSubstr(one.says));
  }
  Json spec = with({{"scheduler", "volcano"}});
  spec["workers"]["template"]["spec"]["schedulerName"] = "mine";
  spec["workers"]["template"]["spec"]["containers"] = Json::array({{{"name", "worker"}}});
  EXPECT_THAT(judge("j", spec, std::nullopt, "").message, HasSubstr("spec.schedulerName"));
  spec = with({{"scheduler", "kueue"}, {"queue", "q"}});
  spec["elastic"] = {{"minReplicas", 1}, {"maxReplicas", 2}};
  EXPECT_THAT(judge("j", spec, std::nullopt, "").message,
              HasSubstr("Kueue admits a whole pod group"));
}

TEST(Gang, IsTakenOnlyByAnOperatorThatWasToldTo) {
  const Verdict asked = judge("j", with({{"scheduler", "volcano"}}), std::nullopt, "");
  ASSERT_TRUE(asked.accepted) << asked.message;
  EXPECT_TRUE(possible_with(asked, true, false).accepted);
  const Verdict refused = possible_with(asked, false, true);
  EXPECT_FALSE(refused.accepted);
  EXPECT_EQ(refused.reason, "Unsupported");
  EXPECT_THAT(refused.message, HasSubstr("--volcano=true"));
  const Verdict kueue =
      judge("j", with({{"scheduler", "kueue"}, {"queue", "q"}}), std::nullopt, "");
  EXPECT_TRUE(possible_with(kueue, false, true).accepted) << kueue.message;
  const Verdict without = possible_with(kueue, true, false);
  EXPECT_FALSE(without.accepted);
  EXPECT_EQ(without.reason, "Unsupported");
  EXPECT_THAT(without.message, HasSubstr("--kueue=true"));
  const Verdict none = judge("j", quick_spec(), std::nullopt, "");
  EXPECT_TRUE(possible_with(none, false, false).accepted) << none.message;
}

}  // namespace
}  // namespace dsj::op::testing

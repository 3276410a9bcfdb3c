// Pods that neither run nor say why: what events say of them, and schedulers that say nothing.
#include <gmock/gmock.h>
#include <spdlog/spdlog.h>

#include "tests/kube/fake_api_server.h"
#include "tests/operator/sim/sim_operator.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::HasSubstr;

Json warning_at(Time time, const std::string& reason, const std::string& note) {
  return {{"reason", reason}, {"note", note}, {"deprecatedLastTimestamp", to_text(time)}};
}

TEST(WordsOfAPod, AreTheNewestWarningThatIsNotOld) {
  const Time now = Time(Seconds(1'767'225'600));
  const Json mount = warning_at(now - Seconds(60), "FailedMount", "secret \"s\" not found");
  const Json attach = warning_at(now - Seconds(30), "FailedAttachVolume", "Multi-Attach error");
  EXPECT_EQ(words_of({mount, attach}, now), "FailedAttachVolume: Multi-Attach error");
  EXPECT_EQ(words_of({attach, mount}, now), "FailedAttachVolume: Multi-Attach error");
  EXPECT_EQ(words_of({attach, mount}, now + Seconds(280)), "") << "it may have come right";
  EXPECT_EQ(words_of({warning_at(now, "FailedScheduling", "0/1 nodes")}, now), "")
      << "the pod has a node by now";
  // A newer kubelet's form, in which times have microseconds.
  Json series = {
      {"reason", "FailedMount"}, {"note", "n"}, {"eventTime", "2020-01-01T00:00:00.000000Z"}};
  EXPECT_EQ(words_of({series}, now), "");
  series["series"]["lastObservedTime"] = to_text(now);
  EXPECT_EQ(words_of({series}, now), "FailedMount: n");
  EXPECT_LE(words_of({warning_at(now, "R", std::string(100'000, 'x'))}, now).size(), 1100u);
  for (const Json& odd : {Json(), Json(5), Json::object(), Json({{"series", 1}, {"note", 2}})})
    EXPECT_EQ(words_of({odd}, now), "");
}

/// Both pods have a node; since `seconds` nothing has happened.
World placed(int seconds) {
  World world;
  world.settle();
  for (PodView& pod : world.o.pods) {
    pod.scheduled = true;
    pod.node = "node-" + std::to_string(pod.worker);
    pod.created = world.now;
  }
  world.settle();
  world.now += Seconds(seconds);
  return world;
}

TEST(SilentPods, AreAskedAboutAfterAWhileAndWhatIsSaidIsTheCondition) {
  World world = placed(19);
  const Plan early = world.pass();
  EXPECT_TRUE(early.ask.empty());
  ASSERT_TRUE(early.again);
  world.now = *early.again;
  const Plan asks = world.pass();
  EXPECT_THAT(asks.ask, ::testing::ElementsAre(world.pod(0).uid, world.pod(1).uid));
  EXPECT_EQ(world.condition("Initialized"), "False WaitingForPods");

  world.o.words = {
      .read = world.now,
      .of = {{world.pod(0).uid, ""}, {world.pod(1).uid, "FailedMount: secret \"s\" not found"}}};
  const Plan told = world.pass();
  EXPECT_TRUE(told.ask.empty()) << "it was just asked";
  EXPECT_EQ(world.condition("Initialized"), "False ContainerCannotStart");
  EXPECT_EQ(world.message("Initialized"), "j-worker-1-1: FailedMount: secret \"s\" not found");
  EXPECT_EQ(world.o.job->own_status["reason"], "ContainerCannotStart");
  ASSERT_TRUE(told.again);
  EXPECT_EQ(*told.again, world.o.words.read + Seconds(30));
  world.now = *told.again;
  EXPECT_EQ(world.pass().ask.size(), 2u) << "it may be another by now";

  world.start_attempt();
  EXPECT_TRUE(world.pass().ask.empty());
  EXPECT_EQ(world.condition("Initialized"), "True GangComplete");
}

TEST(SilentPods, OneThatSaysWhyItWaitsIsNotAskedAbout) {
  World world = placed(60);
  for (PodView& pod : world.o.pods) pod.waiting_reason = "ImagePullBackOff";
  EXPECT_TRUE(world.pass().ask.empty());
  EXPECT_EQ(world.condition("Initialized"), "False ImagePullBackOff");
}

TEST(SilentPods, OfAGangThatRestartsTheyAreTheReason) {
  World world;
  world.to_running();
  std::erase_if(world.o.pods, [](const PodView& pod) { return pod.worker == 1; });
  world.settle();
  PodView& pod = world.pod(1);
  pod.scheduled = true;
  pod.created = world.now;
  world.o.words.of[pod.uid] = "FailedAttachVolume: Multi-Attach error for volume \"pvc-1\"";
  world.now += Seconds(60);
  world.settle();
  EXPECT_EQ(world.phase(), "Restarting");
  EXPECT_THAT(world.message("Initialized"), HasSubstr("Multi-Attach error"));
  EXPECT_EQ(world.o.job->own_status["reason"], "ContainerCannotStart");
}

TEST(SilentPods, ASchedulerThatSaysNothingIsNamed) {
  Json spec = quick_spec();
  spec["workers"]["template"]["spec"]["schedulerName"] = "nope";
  World world(spec);
  world.settle();
  for (PodView& pod : world.o.pods) pod.created = world.now;
  world.settle();
  EXPECT_EQ(world.message("Scheduled"), "0 of 2 pods have a node");
  const Plan before = world.pass();
  ASSERT_TRUE(before.again);
  world.now = *before.again;
  world.settle();
  EXPECT_EQ(world.condition("Scheduled"), "False Waiting");
  EXPECT_EQ(world.message("Scheduled"),
            "0 of 2 pods have a node; no scheduler has reported on j-worker-0-1; its "
            "schedulerName is nope");
}

/// From the events of a server to the status of the job.
TEST(SilentPods, TheirEventsAreReadFromTheServer) {
  spdlog::set_level(spdlog::level::off);
  kube::testing::FakeApiServer server;
  server.serve(jobs_resource(), true);
  server.serve(pod_groups_resource(), true);
  sim::SimClock clock;
  sim::Chance chance{1};
  kube::Client user(server, clock);
  sim::SimOperator op(server, clock, chance, nullptr);
  const auto turns = [&](int count) {
    for (int i = 0; i < count; ++i) {
      clock.now += Seconds(1);
      op.turn();
    }
  };
  ASSERT_TRUE(user.create(jobs_resource(), "n",
                          {{"apiVersion", jobspec::kApiVersion},
                           {"kind", jobspec::kKind},
                           {"metadata", {{"name", "j"}, {"namespace", "n"}}},
                           {"spec", quick_spec(2)}}));
  turns(5);
  const auto pods = server.objects(kube::resources::pods());
  ASSERT_EQ(pods.size(), 2u);
  for (const Json& pod : pods)
    server.edit(kube::resources::pods(), "n", pod["metadata"]["name"], [&](Json& object) {
      object["spec"]["nodeName"] = "node";
      object["metadata"]["creationTimestamp"] = to_text(clock.at());
    });
  const auto event = [&](const char* name, const std::string& uid, const char* type) {
    ASSERT_TRUE(user.create(kube::resources::events(), "n",
                            {{"metadata", {{"name", name}, {"namespace", "n"}}},
                             {"type", type},
                             {"reason", "FailedMount"},
                             {"note", std::string("of ") + name},
                             {"regarding", {{"uid", uid}}},
                             {"eventTime", to_text(clock.at())}}));
  };
  turns(15);
  event("another", "another-uid", "Warning");
  event("normal", pods[0]["metadata"]["uid"], "Normal");
  event("it", pods[1]["metadata"]["uid"], "Warning");
  const auto initialized = [&] {
    const auto status =
        own_status_from_json(own_part(server.objects(jobs_resource())[0]["status"]));
    const Condition* found = find_condition(status.conditions, "Initialized");
    return found ? found->message : "";
  };
  turns(35);
  EXPECT_EQ(initialized(), "j-worker-1-1: FailedMount: of it");
  const auto asked = server.requests("GET");
  turns(60);
  EXPECT_LE(server.requests("GET") - asked, 6) << "both pods, every half minute";
}

}  // namespace
}  // namespace dsj::op::testing

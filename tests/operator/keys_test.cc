// Worker 0's key: who mounts it, who gets its authority, when a run gets another, and that the operator
// never reads a Secret.
#include "operator/render/keys.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "job/join_keys.h"
#include "tests/kube/fake_api_server.h"
#include "tests/operator/sim/sim_operator.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using kube::testing::FakeApiServer;
using Names = std::set<std::string>;

std::string env_of(const Json& pod, const char* name) {
  for (const Json& entry : pod["spec"]["containers"][0]["env"])
    if (entry["name"] == name) return entry["value"];
  return "";
}

/// The authorities of all pods that live.
Names authorities(const World& world) {
  Names all;
  for (const PodView& pod : world.o.pods)
    if (!pod.ended() && !pod.deleting_from) all.insert(pod.authority);
  return all;
}

TEST(Keys, WorkerZeroAloneMountsTheSecret) {
  World world;
  const Plan plan = world.pass();
  ASSERT_TRUE(plan.key);
  EXPECT_EQ(plan.key->host, "j-worker-0.j-worker.n.svc");
  EXPECT_EQ(plan.key->name, "j-dsj-key-1");
  ASSERT_EQ(plan.pods.size(), 2u);
  for (const Create& pod : plan.pods) {
    const bool zero = label_of(pod.object, contract::kLabelReplicaIndex) == "0";
    EXPECT_EQ(pod.object.dump().contains("\"secret\""), zero);
    EXPECT_EQ(pod.object.dump().contains(kJoinKeyMountPath), zero);
    EXPECT_EQ(env_of(pod.object, contract::kEnvJoinRun), "1");
  }
  EXPECT_EQ(authorities(world), Names{"of j-dsj-key-1"});
  EXPECT_EQ(world.status().key_run, 1);
}

TEST(Keys, OneWorkerNeedsNone) {
  World world(quick_spec(1));
  const Plan plan = world.pass();
  EXPECT_FALSE(plan.key);
  ASSERT_EQ(plan.pods.size(), 1u);
  EXPECT_FALSE(plan.pods[0].object.dump().contains("DSJ_JOIN"));
}

TEST(Keys, AReplacedWorkerGetsTheAuthorityOfThoseThatLive) {
  for (const int worker : {0, 1}) {
    World world;
    world.to_running();
    world.end(world.pod(worker), 86, "PeerLost");
    world.settle();
    EXPECT_EQ(world.pod(worker).incarnation, 2);
    EXPECT_EQ(world.pod(worker).run, 1);
    EXPECT_EQ(authorities(world), Names{"of j-dsj-key-1"});
    EXPECT_EQ(world.secrets, Names{"j-dsj-key-1"});
  }
}

/// Labels and annotations can be patched; a variable cannot.
TEST(Keys, NothingButTheEnvironmentSaysWhomAPodTrusts) {
  World world;
  const Plan plan = world.pass();
  Json pod = plan.pods[0].object;
  set_key(pod, "j", 1, "PEM");
  pod["metadata"]["labels"][contract::kLabelKeys] = "7";
  pod["metadata"]["annotations"][contract::kEnvJoinAuthority] = "another";
  EXPECT_EQ(pod_view(pod)->authority, "PEM");
  EXPECT_EQ(pod_view(pod)->run, 1);
}

TEST(Keys, ANewRunGetsANewKeyAndTheOldOneGoes) {
  World world;
  world.to_running();
  world.edit("/suspend", true);
  world.end_all(87, "Preempted", 5);
  world.o.job->agent.saved_step = world.o.job->agent.stop_step = 5;
  for (int i = 0; i < 4; ++i) world.pass();
  world.reap();
  EXPECT_EQ(world.secrets, Names{}) << "nobody needs it while the job is suspended";
  EXPECT_EQ(world.status().key_run, 0);
  world.edit("/suspend", false);
  world.settle();
  EXPECT_EQ(world.pod(0).run, 2);
  EXPECT_EQ(world.secrets, Names{"j-dsj-key-2"});
}

TEST(Keys, AFinishedJobHasNone) {
  World world;
  world.to_running();
  world.end_all(0, "Completed", 10);
  world.settle();
  EXPECT_EQ(world.phase(), "Complete");
  EXPECT_TRUE(world.secrets.empty());
}

TEST(Keys, AMonthsRunKeepsItsKey) {
  World world;
  world.to_running();
  world.now += std::chrono::days(400);
  world.o.job->agent.updated = world.now;
  const Plan plan = world.pass();
  EXPECT_FALSE(plan.key || plan.old_key);
  EXPECT_TRUE(plan.deletes.empty());
}

/// The gang does not live on with pods of two authorities, whatever their origin.
void expect_new_run(World& world, const std::string& why, const Names& left = {}) {
  const int64_t charged = world.status().restarts.counted;
  const Plan plan = world.pass();
  EXPECT_TRUE(plan.pods.empty());
  EXPECT_TRUE(world.message("Restarting").contains(why)) << world.message("Restarting");
  world.reap();
  for (int i = 0; i < 4; ++i) {
    world.now += Seconds(5);
    world.settle();
    world.reap();
  }
  EXPECT_EQ(authorities(world), Names{"of j-dsj-key-2"});
  Names secrets = left;  // goes with the job
  secrets.insert("j-dsj-key-2");
  EXPECT_EQ(world.secrets, secrets);
  EXPECT_EQ(world.status().restarts.counted, charged);
  world.start_attempt();
  EXPECT_EQ(world.phase(), "Running");
}

/// Somebody deleted the Secret: worker 0's agent says so. Nobody is charged.
TEST(Keys, AKeyThatTheAgentMissesBeginsANewRun) {
  World world;
  world.to_running();
  world.pod(0).created = world.now;
  world.end(world.pod(0), kExitKeyMissing, kReasonKeyMissing);
  expect_new_run(world, "worker 0's key is gone");
}

TEST(Keys, PodsOfTwoKeysBeginANewRun) {
  World world;
  world.settle();
  world.run_pods();
  world.pod(1).authority = "of another leader";
  expect_new_run(world, "trust different keys");
}

/// The last release: a ConfigMap with authorities that all pods mount, and Secrets by slot.
TEST(Keys, AnOlderOperatorsGangRunsOnUntilAPodMustBeReplaced) {
  World world;
  world.to_running();
  for (PodView& pod : world.o.pods) {
    pod.authority.clear();
    pod.run = 0;
  }
  world.secrets = {"j-dsj-key-1-0"};
  world.o.job->own_status.erase(kKeyRun);
  world.o.job->own_status.erase(kKeyUid);
  world.o.children.push_back({.kind = "ConfigMap",
                              .name = "j-keys-1",
                              .uid = "set-uid",
                              .owner_uid = "job-uid",
                              .key_set = "1"});
  world.settle();
  const Plan plan = world.pass();
  EXPECT_TRUE(plan.deletes.empty());
  EXPECT_TRUE(plan.pods.empty());
  world.end(world.pod(1), 137, "Error");
  world.pod(1).conditions = {"DisruptionTarget"};
  expect_new_run(world, "created by an older operator", {"j-dsj-key-1-0"});
  for (const ChildView& child : world.o.children) EXPECT_EQ(child.key_set, "");
}

class ApplyKeys : public ::testing::Test {
 protected:
  ApplyKeys() { spdlog::set_level(spdlog::level::off); }
  struct Ignored final : Writes {
    void wrote(const std::string&, const Json&) override {}
  };
  Applied carry_out(const Plan& plan) {
    Ignored writes;
    NoEvents events;
    return apply(
        client, world.o, plan, [] { return true; }, writes, events);
  }
  /// A plan that makes the key and the pods, and nothing else.
  Plan first() {
    Plan plan = reconcile(world.o, world.now);
    plan.creates.clear();
    plan.events.clear();
    plan.status = nullptr;
    return plan;
  }
  void occupy() {
    ASSERT_TRUE(client.create(kube::resources::secrets(), "n",
                              {{"apiVersion", "v1"},
                               {"kind", "Secret"},
                               {"type", "Opaque"},
                               {"metadata", {{"name", "j-dsj-key-1"}}}}));
  }

  FakeApiServer server;
  sim::SimClock clock;
  kube::Client client{server, clock, {.attempts = 1}};
  World world;
};

TEST_F(ApplyKeys, TheSecretHasTheKeyAndThePodsTheAuthority) {
  const Applied done = carry_out(first());
  ASSERT_TRUE(done.done) << done.problem;
  const auto secrets = server.objects(kube::resources::secrets());
  ASSERT_EQ(secrets.size(), 1u);
  EXPECT_EQ(secrets[0]["type"], contract::kKeySecretType);
  EXPECT_EQ(secrets[0]["immutable"], true);
  EXPECT_EQ(secrets[0]["metadata"]["ownerReferences"][0]["uid"], "job-uid");
  EXPECT_TRUE(secrets[0]["stringData"][kJoinKeyFile].get<std::string>().contains("PRIVATE KEY"));
  EXPECT_TRUE(secrets[0]["stringData"][kJoinChainFile].get<std::string>().contains("CERTIFICATE"));
  Names authorities;
  for (const Json& pod : server.objects(kube::resources::pods())) {
    authorities.insert(env_of(pod, contract::kEnvJoinAuthority));
    EXPECT_FALSE(pod.dump().contains("PRIVATE"));
  }
  ASSERT_EQ(authorities.size(), 1u);
  EXPECT_TRUE(authorities.begin()->starts_with("-----BEGIN CERTIFICATE"));
}

// The operator has no right to read a Secret: it must never try.
TEST_F(ApplyKeys, ASecretThatTheStatusNamesIsReplaced) {
  Plan cut = first();
  cut.pods.clear();
  const Applied made = carry_out(cut);
  ASSERT_TRUE(made.done);
  Plan again = first();
  again.key->uid = made.key.uid;
  const Applied done = carry_out(again);
  ASSERT_TRUE(done.done) << done.problem;
  const auto secrets = server.objects(kube::resources::secrets());
  ASSERT_EQ(secrets.size(), 1u);
  EXPECT_EQ(secrets[0]["metadata"]["uid"], done.key.uid);
  EXPECT_NE(done.key.uid, made.key.uid);
}

/// What the status says of the Secret: nothing, or the uid of one that is gone.
struct TakenKey : ApplyKeys, ::testing::WithParamInterface<const char*> {};

/// It is a stranger's, or of a pass that was cut off before it wrote the status: nobody can tell.
TEST_P(TakenKey, IsLeftAndTheKeyGetsAnotherName) {
  occupy();
  Plan plan = first();
  plan.key->uid = GetParam();
  const Applied done = carry_out(plan);
  ASSERT_TRUE(done.done) << done.problem;
  const auto secrets = server.objects(kube::resources::secrets());
  ASSERT_EQ(secrets.size(), 2u);
  EXPECT_EQ(secrets[0]["metadata"]["name"], "j-dsj-key-1");
  EXPECT_EQ(secrets[0]["type"], "Opaque");
  EXPECT_EQ(secrets[1]["metadata"]["name"], "j-dsj-key-1767225600");
  EXPECT_EQ(secrets[1]["metadata"]["uid"], done.key.uid);
  int mounted = 0;
  for (const Json& pod : server.objects(kube::resources::pods())) {
    EXPECT_EQ(env_of(pod, contract::kEnvJoinRun), "1767225600");
    mounted += pod.dump().contains("\"j-dsj-key-1767225600\"");
    EXPECT_FALSE(pod.dump().contains("\"j-dsj-key-1\""));
  }
  EXPECT_EQ(mounted, 1) << "worker 0 alone";
}

INSTANTIATE_TEST_SUITE_P(Uid, TakenKey, ::testing::Values("", "gone"));

/// A quota keeps the pods away for hours: the key is made once.
TEST(Keys, AKeyThatNoPodHasYetServesTheNextPass) {
  World world;
  const Plan plan = reconcile(world.o, world.now);
  ASSERT_TRUE(plan.key);
  world.o.job->own_status = plan.status;
  world.o.job->own_status[kKeyUid] = "u";
  world.o.unused_key = {plan.key->run, "u", "PEM"};
  const Plan next = reconcile(world.o, world.now);
  EXPECT_FALSE(next.key || next.old_key);
  ASSERT_EQ(next.pods.size(), 2u);
  for (const Create& pod : next.pods)
    EXPECT_EQ(env_of(pod.object, contract::kEnvJoinAuthority), "PEM");
  world.o.unused_key.uid = "another";
  EXPECT_TRUE(reconcile(world.o, world.now).key);
}

/// The status is written after the old key is gone: it names that key until then.
TEST_F(ApplyKeys, AnOldKeyThatIsNotGoneStopsThePass) {
  occupy();
  server.set_fault([](const kube::Request& request) {
    using kube::testing::Fault;
    const bool deletion = request.method == "DELETE" && request.path.contains("/secrets/");
    return deletion ? Fault{.kind = Fault::Kind::Refuse, .status = 500} : Fault{};
  });
  Plan plan = first();
  plan.key.reset();
  plan.old_key = key_deletion("j", 1, "uid-1");
  plan.status = Json::object();
  const Applied applied = carry_out(plan);
  EXPECT_FALSE(applied.done);
  EXPECT_FALSE(applied.status_written);
  EXPECT_TRUE(server.objects(kube::resources::pods()).empty());
}

}  // namespace
}  // namespace dsj::op::testing

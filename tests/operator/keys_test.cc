// Worker 0's keys: who mounts them, when they are renewed, and that the operator never reads one.
#include "operator/render/keys.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <set>

#include "job/join_keys.h"
#include "tests/kube/fake_api_server.h"
#include "tests/operator/sim/sim_operator.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using kube::testing::FakeApiServer;
using std::chrono::hours;

const Json* keys_of(const Json& pod) {
  for (const Json& volume : pod["spec"]["volumes"]) {
    if (volume["name"] == "dsj-keys") return &volume["projected"]["sources"];
  }
  return nullptr;
}

std::vector<const ChildView*> sets_of(const World& world) {
  std::vector<const ChildView*> sets;
  for (const ChildView& child : world.o.children) {
    if (!child.key_set.empty()) sets.push_back(&child);
  }
  return sets;
}

TEST(Keys, WorkerZeroAloneMountsASecret) {
  World world;
  const Plan plan = world.pass();
  ASSERT_TRUE(plan.keys);
  EXPECT_EQ(plan.keys->host, "j-worker-0.j-worker.n.svc");
  ASSERT_EQ(plan.pods.size(), 2u);
  for (int worker = 0; worker < 2; ++worker) {
    const Json& pod = plan.pods[worker].object;
    const Json* sources = keys_of(pod);
    ASSERT_NE(sources, nullptr);
    ASSERT_EQ(sources->size(), worker == 0 ? 1u + kKeySlots : 1u) << *sources;
    EXPECT_EQ((*sources)[0]["configMap"]["name"], "j-keys-1");
    if (worker == 0) {
      EXPECT_EQ((*sources)[1]["secret"]["name"], "j-dsj-key-1-0");
    }
    EXPECT_EQ(pod.dump().find("\"secret\"") == std::string::npos, worker != 0);
    bool told = false;
    for (const Json& entry : pod["spec"]["containers"][0]["env"]) {
      told |= entry["name"] == contract::kEnvJoinTls;
    }
    EXPECT_TRUE(told);
  }
}

TEST(Keys, OneWorkerNeedsNone) {
  World world(quick_spec(1));
  const Plan plan = world.pass();
  EXPECT_FALSE(plan.keys);
  ASSERT_EQ(plan.pods.size(), 1u);
  EXPECT_EQ(keys_of(plan.pods[0].object), nullptr);
}

TEST(Keys, AReplacedWorkerGetsTheSetOfThoseThatLive) {
  World world;
  world.to_running();
  world.end(world.pod(0), 86, "PeerLost");
  world.settle();
  EXPECT_EQ(world.pod(0).incarnation, 2);
  EXPECT_EQ(world.pod(0).keys, "1");
  EXPECT_EQ(sets_of(world).size(), 1u);
}

TEST(Keys, ANewRunGetsANewSetAndTheOldOneGoes) {
  World world;
  world.to_running();
  world.edit("/suspend", true);
  world.end_all(87, "Preempted", 5);
  world.o.job->agent.saved_step = world.o.job->agent.stop_step = 5;
  std::set<std::string> gone;
  const auto note = [&](const Plan& plan) {
    for (const Delete& entry : plan.deletes) {
      if (entry.kind == "Secret") gone.insert(entry.name + " " + entry.uid.substr(0, 10));
    }
  };
  for (int i = 0; i < 4; ++i) note(world.pass());
  world.reap();
  EXPECT_TRUE(sets_of(world).empty()) << "nobody needs it while the job is suspended";
  EXPECT_EQ(gone, std::set<std::string>{"j-dsj-key-1-0 secret-uid"});
  world.edit("/suspend", false);
  world.settle();
  EXPECT_EQ(world.pod(0).keys, "2");
  ASSERT_EQ(sets_of(world).size(), 1u);
  EXPECT_EQ(sets_of(world)[0]->key_set, "2");
}

TEST(Keys, ARunWhoseSetCannotBeMadeTakesTheNextNumber) {
  World world;
  EXPECT_TRUE(reconcile(world.o, world.now).keys->may_move);
  world.o.taken_set = "3";
  const Plan plan = world.pass();
  EXPECT_EQ(plan.keys->set, "4");
  ASSERT_EQ(plan.pods.size(), 2u);
  EXPECT_EQ(plan.pods[0].name, "j-worker-0-4");
  EXPECT_EQ(world.status().incarnation, 3) << "the next operator begins there";
  world.start_attempt();
  world.o.taken_set = "4";
  world.now += kKeyRenewAfter;
  const Plan renewal = world.pass();
  ASSERT_TRUE(renewal.keys);
  EXPECT_EQ(renewal.keys->set, "4") << "pods that live have it";
  EXPECT_FALSE(renewal.keys->may_move);
}

/// kubectl delete configmaps,secrets --all: the kubelets of the gang that lives have the first Secret still.
TEST(Keys, WhatSomebodyDeletedIsMadeUnderAnotherName) {
  World world;
  world.to_running();
  ASSERT_EQ(sets_of(world).size(), 1u);
  std::erase_if(world.o.children, [](const ChildView& child) { return child.key_set == "1"; });
  const Plan plan = reconcile(world.o, world.now);
  ASSERT_TRUE(plan.keys);
  EXPECT_EQ(plan.keys->set, "1") << "the pods that live mount it";
  EXPECT_EQ(plan.keys->slots, (std::vector<int>{1, 2, 3, 0}));
}

/// Somebody deleted the Secret alone: worker 0's agent says so, and its successor gets another key. Nobody is charged.
TEST(Keys, AKeyThatTheAgentMissesIsMadeAnewOnce) {
  World world;
  world.to_running();
  ASSERT_EQ(sets_of(world)[0]->keys.size(), 1u);
  const WorkerKey lost = sets_of(world)[0]->keys[0];
  world.pod(0).created = world.now;
  world.end(world.pod(0), kExitKeyMissing, kReasonKeyMissing);
  world.now += kKeyPatience + Seconds(5);
  const Plan plan = world.pass();
  ASSERT_TRUE(plan.keys);
  EXPECT_EQ(plan.keys->set, "1");
  EXPECT_TRUE(plan.keys->keep.empty());
  ASSERT_EQ(plan.keys->drop.size(), 1u);
  EXPECT_EQ(plan.keys->drop[0].uid, lost.uid);
  EXPECT_EQ(plan.keys->slots, (std::vector<int>{1, 2, 3}));
  world.settle();
  ASSERT_EQ(sets_of(world)[0]->keys.size(), 1u);
  EXPECT_EQ(sets_of(world)[0]->keys[0].slot, 1);
  EXPECT_EQ(world.status().restarts.counted, 0);
  EXPECT_EQ(world.pod(0).incarnation, 2);
}

TEST(Keys, AnAnnouncedSlotIsClearedOnlyWhileItIsFree) {
  const Time now = *time_from_text("2026-01-31T12:00:00Z");
  const JobView job{.ns = "n", .name = "j", .uid = "u"};
  const auto half_made = [&](const char* announced, bool make) {
    ChildView seen{.keys = {{1, "uid", now}}};
    seen.key_announced = announced_slot(announced);
    return key_change(job, "1", &seen, {.make = make, .keep = seen.keys}, now).half_made;
  };
  EXPECT_EQ(half_made("2", true), 2);
  EXPECT_EQ(half_made("2", false), std::nullopt);
  EXPECT_EQ(half_made("1", true), std::nullopt) << "the ConfigMap speaks of it";
  for (const char* bad : {"", "x", "2x", "-1", "4", "99999999999"}) {
    EXPECT_EQ(half_made(bad, true), std::nullopt) << bad;
  }
}

TEST(Keys, AFinishedJobHasNone) {
  World world;
  world.to_running();
  world.end_all(0, "Completed", 10);
  world.settle();
  EXPECT_EQ(world.phase(), "Complete");
  EXPECT_TRUE(sets_of(world).empty());
}

TEST(Keys, PodsOfAnOlderOperatorStayWithoutUntilTheirRunEnds) {
  World world;
  world.to_running();
  for (PodView& pod : world.o.pods) pod.keys.clear();
  world.end(world.pod(1), 86, "PeerLost");
  world.settle();
  EXPECT_EQ(world.pod(1).incarnation, 2);
  EXPECT_EQ(world.pod(1).keys, "") << "the old worker 0 cannot prove itself";
}

// By the clock alone: some key is always valid, known to every pod long enough, and in its Secret.
TEST(Keys, TwoYearsOfUptime) {
  World world;
  world.to_running();
  struct Seen {
    Time made;
    std::optional<Time> gone;
  };
  std::map<std::string, Seen> secrets;  // [uid]
  size_t most = 0;
  for (int hour = 0; hour < 2 * 365 * 24; hour += 6) {
    world.now += hours(6);
    world.o.job->agent.updated = world.now;
    const Plan plan = world.pass();
    EXPECT_TRUE(plan.deletes.empty());
    for (const WorkerKey& key : plan.keys ? plan.keys->drop : std::vector<WorkerKey>()) {
      secrets[key.uid].gone = world.now;
    }
    ASSERT_EQ(sets_of(world).size(), 1u);
    const auto& keys = sets_of(world)[0]->keys;
    ASSERT_FALSE(keys.empty());
    most = std::max(most, keys.size());
    for (const WorkerKey& key : keys) {
      secrets.try_emplace(key.uid, Seen{key.made, {}});
      EXPECT_FALSE(secrets[key.uid].gone) << "spoken of, and deleted";
    }
    // Agent 0 shows the newest that all know: a pod that read the files a day ago knows it, too.
    const bool one_is_known = std::ranges::any_of(keys, [&](const WorkerKey& key) {
      return world.now - key.made >= kKeySpread && world.now - key.made < kKeyLifetime;
    });
    EXPECT_TRUE(one_is_known || hour < 24);
  }
  EXPECT_EQ(most, 2u);
  EXPECT_GE(secrets.size(), 24u);
  for (const auto& [uid, seen] : secrets) {
    if (!seen.gone) continue;
    EXPECT_GE(*seen.gone - seen.made, kKeyRenewAfter + kKeyRetire);
  }
  EXPECT_EQ(std::ranges::count_if(secrets, [](const auto& s) { return !s.second.gone; }), 1);
}

TEST(Keys, WhatIsWrittenIsReadAgain) {
  const Time now = *time_from_text("2026-01-31T12:00:00Z");
  EXPECT_TRUE(keys_from("").empty());
  EXPECT_TRUE(
      keys_from(R"([{"slot": 9, "uid": "u", "made": "2026-01-31T12:00:00Z"}, 3, {"slot": 1}])")
          .empty());
  const KeyChange change{.job = "j", .set = "1", .keep = {{0, "a", now - hours(1)}}};
  const Json config = key_config(change, WorkerKey{1, "b", now}, "PEM");
  const auto read = child_view(config).keys;
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[1].uid, "b");
  EXPECT_EQ(read[1].made, now);
  EXPECT_EQ(config["data"][authority_file(1)], "PEM");
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
  /// A plan that makes the set and nothing else.
  Plan first() {
    Plan plan = reconcile(world.o, world.now);
    plan.creates.clear();
    plan.pods.clear();
    plan.events.clear();
    plan.status = nullptr;
    return plan;
  }
  Json config() { return server.objects(kube::resources::config_maps())[0]; }
  /// As the watch tells of the set.
  void look() {
    std::erase_if(world.o.children, [](const ChildView& child) { return !child.key_set.empty(); });
    world.o.children.push_back(child_view(config()));
  }
  /// To a gang that lives and has its first key.
  void start() {
    ASSERT_TRUE(carry_out(first()).done);
    world.pass();
    world.run_pods();
    look();
  }
  std::set<std::string> secrets() {
    std::set<std::string> all;
    for (const Json& secret : server.objects(kube::resources::secrets())) {
      all.insert(secret["metadata"]["name"].get<std::string>() + " " +
                 secret["metadata"]["uid"].get<std::string>());
    }
    return all;
  }
  std::set<std::string> spoken_of() {
    std::set<std::string> all;
    for (const WorkerKey& key : child_view(config()).keys) {
      all.insert(key_secret_name("j", "1", key.slot) + " " + key.uid);
    }
    return all;
  }

  FakeApiServer server;
  sim::SimClock clock;
  kube::Client client{server, clock, {.attempts = 1}};
  World world;
};

TEST_F(ApplyKeys, TheSecretHasTheKeyAndTheConfigMapTheAuthority) {
  const Applied done = carry_out(first());
  ASSERT_TRUE(done.done) << done.problem;
  const auto secrets = server.objects(kube::resources::secrets());
  ASSERT_EQ(secrets.size(), 1u);
  EXPECT_EQ(secrets[0]["type"], contract::kKeySecretType);
  EXPECT_EQ(secrets[0]["metadata"]["ownerReferences"][0]["uid"], "job-uid");
  EXPECT_NE(secrets[0]["stringData"][key_file(0)].get<std::string>().find("PRIVATE KEY"),
            std::string::npos);
  const auto keys = child_view(config()).keys;
  ASSERT_EQ(keys.size(), 1u);
  EXPECT_EQ(secrets[0]["metadata"]["uid"], keys[0].uid);
  EXPECT_EQ(config().dump().find("PRIVATE"), std::string::npos);
  EXPECT_EQ(config()["metadata"]["labels"][contract::kLabelManagedBy], contract::kOperatorManager);
}

// The operator has no right to read a Secret: it must never try.
TEST_F(ApplyKeys, ASecretOfAPassThatWasCutOffIsPassedOver) {
  ASSERT_TRUE(carry_out(first()).done);
  ASSERT_TRUE(client.remove(kube::resources::config_maps(), "n", "j-keys-1"));
  const Applied done = carry_out(first());
  ASSERT_TRUE(done.done) << done.problem;
  EXPECT_EQ(child_view(config()).keys.at(0).slot, 1);
  EXPECT_EQ(server.objects(kube::resources::secrets()).size(), 2u);
}

TEST_F(ApplyKeys, ThePassThatComesSecondTakesItsKeyBack) {
  const Plan plan = first();
  ASSERT_TRUE(carry_out(plan).done);
  const Json before = config();
  // The other leader's ConfigMap is there by now.
  Plan late = plan;
  late.keys->slots = {2, 3};
  EXPECT_TRUE(carry_out(late).done) << "there is a set, and the pods may be made";
  EXPECT_EQ(config(), before);
  EXPECT_EQ(server.objects(kube::resources::secrets()).size(), 1u);
}

TEST_F(ApplyKeys, WhereAllSlotsAreTakenItSaysSo) {
  for (int slot = 0; slot < kKeySlots; ++slot) {
    ASSERT_TRUE(client.create(kube::resources::secrets(), "n",
                              {{"apiVersion", "v1"},
                               {"kind", "Secret"},
                               {"metadata", {{"name", key_secret_name("j", "1", slot)}}}}));
  }
  const Applied moves = carry_out(first());
  EXPECT_FALSE(moves.done);
  EXPECT_FALSE(moves.refusal) << "nobody has to do anything";
  EXPECT_EQ(moves.taken_set, "1");
  Plan plan = first();
  plan.keys->may_move = false;
  const Applied refused = carry_out(plan);
  EXPECT_FALSE(refused.done);
  EXPECT_EQ(refused.taken_set, "");
  ASSERT_TRUE(refused.refusal);
  EXPECT_EQ(refused.refusal->reason, "NameTaken");
}

TEST_F(ApplyKeys, ARenewalLeavesTheOldAuthorityUntilItIsRetired) {
  ASSERT_TRUE(carry_out(first()).done);
  world.pass();
  world.run_pods();
  look();
  world.now += kKeyRenewAfter;
  ASSERT_TRUE(carry_out(first()).done);
  EXPECT_EQ(config()["data"].size(), 2u);
  EXPECT_EQ(server.objects(kube::resources::secrets()).size(), 2u);
  look();
  world.now += kKeyRetire;
  ASSERT_TRUE(carry_out(first()).done);
  EXPECT_EQ(config()["data"].size(), 1u);
  EXPECT_TRUE(config()["data"].contains(authority_file(1)));
  EXPECT_EQ(server.objects(kube::resources::secrets()).size(), 1u);
}

// A second leader, or one that sees late, has a view in which the key is half made. By now it is shown.
TEST_F(ApplyKeys, AnOldViewOfAnAnnouncementClearsNothing) {
  start();
  ASSERT_TRUE(
      client.merge_patch(kube::resources::config_maps(), "n", "j-keys-1",
                         {{"metadata", {{"annotations", {{kAnnotationKeyAnnounced, "1"}}}}}}));
  look();
  world.now += kKeyRenewAfter;
  const Plan plan = first();
  ASSERT_TRUE(plan.keys);
  ASSERT_EQ(plan.keys->half_made, 1);
  const Applied done = carry_out(plan);
  ASSERT_TRUE(done.done) << done.problem;
  ASSERT_EQ(child_view(config()).keys.back().slot, 1);
  const auto before = secrets();
  EXPECT_FALSE(carry_out(plan).done);
  EXPECT_EQ(secrets(), before);
  EXPECT_EQ(secrets(), spoken_of());
}

struct CutOffAt {
  int write;
  kube::testing::Fault::Kind kind;
};
struct CutOff : ApplyKeys, ::testing::WithParamInterface<CutOffAt> {};

// The gang lives on under this set, so no name may be lost, however often it goes wrong.
TEST_P(CutOff, ARenewalLeavesNoSecretThatNobodySpeaksOf) {
  start();
  for (const auto& [after, keys] : {std::pair(kKeyRenewAfter, 2u), std::pair(kKeyRetire, 1u)}) {
    world.now += after;
    int faults = 0;
    for (int round = 0; round < 6; ++round) {
      int write = 0;
      server.set_fault([&](const kube::Request& request) {
        const bool here = request.method != "GET" && write++ == GetParam().write;
        faults += here;
        return here ? kube::testing::Fault{.kind = GetParam().kind} : kube::testing::Fault{};
      });
      Plan plan = first();
      if (plan.keys) (void)carry_out(plan);
      look();
    }
    if (GetParam().write < 2) {
      EXPECT_GT(faults, 0);
    }
    server.set_fault(nullptr);
    if (const Plan plan = first(); plan.keys) {
      const Applied done = carry_out(plan);
      ASSERT_TRUE(done.done) << done.problem;
    }
    EXPECT_EQ(secrets().size(), keys);
    EXPECT_EQ(secrets(), spoken_of());
    EXPECT_FALSE(config()["metadata"]["annotations"].contains(kAnnotationKeyAnnounced));
    look();
  }
}

std::vector<CutOffAt> every_write() {
  std::vector<CutOffAt> all;
  using enum kube::testing::Fault::Kind;
  for (int write = 0; write < 4; ++write) {
    for (const auto kind : {Refuse, LoseAnswer, LoseRequest}) all.push_back({write, kind});
  }
  return all;
}

std::string name_of_cut(const ::testing::TestParamInfo<CutOffAt>& info) {
  static constexpr const char* kKinds[] = {"None", "Refused", "NoAnswer", "NoRequest"};
  return "Write" + std::to_string(info.param.write) + kKinds[static_cast<int>(info.param.kind)];
}

INSTANTIATE_TEST_SUITE_P(AtEveryWrite, CutOff, ::testing::ValuesIn(every_write()), name_of_cut);

TEST_F(ApplyKeys, ARenewalPassesOverWhatIsSomebodyElses) {
  start();
  for (int slot = 1; slot < 3; ++slot) {
    ASSERT_TRUE(client.create(kube::resources::secrets(), "n",
                              {{"apiVersion", "v1"},
                               {"kind", "Secret"},
                               {"type", "Opaque"},
                               {"metadata", {{"name", key_secret_name("j", "1", slot)}}}}));
  }
  // A pass before had announced one of them, and the chart's policy does not let it go.
  ASSERT_TRUE(
      client.merge_patch(kube::resources::config_maps(), "n", "j-keys-1",
                         {{"metadata", {{"annotations", {{kAnnotationKeyAnnounced, "2"}}}}}}));
  look();
  server.set_fault([](const kube::Request& request) {
    using kube::testing::Fault;
    const bool deletion = request.method == "DELETE" && request.path.contains("/secrets/");
    return deletion ? Fault{.kind = Fault::Kind::Refuse, .status = 403} : Fault{};
  });
  world.now += kKeyRenewAfter;
  const Applied done = carry_out(first());
  ASSERT_TRUE(done.done) << done.problem;
  EXPECT_EQ(child_view(config()).keys.back().slot, 3);
  EXPECT_EQ(secrets().size(), 4u);
}

}  // namespace
}  // namespace dsj::op::testing

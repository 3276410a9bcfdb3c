// The controller's own care: what one job's objects do to the passes of the others.
#include "operator/serve/controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "operator/render/render_pod.h"
#include "tests/kube/fake_api_server.h"
#include "tests/operator/sim/sim_operator.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

void create_job(kube::Client& user, const std::string& name) {
  EXPECT_TRUE(user.create(jobs_resource(), "n",
                          {{"apiVersion", jobspec::kApiVersion},
                           {"kind", jobspec::kKind},
                           {"metadata", {{"name", name}, {"namespace", "n"}}},
                           {"spec", quick_spec(2)}}));
}

/// An operator over an API server in memory that decides with `decide`, a second a turn.
class Passes {
 public:
  explicit Passes(std::function<Plan(const Observed&, Time)> decide)
      : bug_{.name = "another decision", .decide = std::move(decide)} {
    server_.serve(jobs_resource(), true);
    server_.serve(pod_groups_resource(), true);
  }

  void submit(const std::string& name) {
    kube::Client user(server_, clock_);
    create_job(user, name);
  }

  void turns(int count) {
    for (int i = 0; i < count; ++i) {
      clock_.now += Seconds(1);
      operator_.turn();
    }
  }

  OwnStatus status_of(const std::string& name) const {
    for (const Json& job : server_.objects(jobs_resource()))
      if (job["metadata"]["name"] == name) return own_status_from_json(job.value("status", Json()));
    return {};
  }
  int64_t posts() const { return server_.requests("POST"); }
  void refuse(const char* collection, int status) {
    server_.set_fault([=](const kube::Request& request) {
      using Fault = kube::testing::Fault;
      const bool hit = request.method == "POST" && request.path.ends_with(collection);
      return hit ? Fault{.kind = Fault::Kind::Refuse, .status = status} : Fault{};
    });
  }
  int64_t pods_of(const std::string& name) const {
    return std::ranges::count_if(server_.objects(kube::resources::pods()), [&](const Json& pod) {
      return label_of(pod, contract::kLabelJobName) == name;
    });
  }

 private:
  kube::testing::FakeApiServer server_;
  sim::SimClock clock_;
  sim::Chance chance_{1};
  const sim::Bug bug_;
  sim::SimOperator operator_{server_, clock_, chance_, &bug_};
};

/// Readers of objects ask before they take. One that forgets it throws, and the guard is for that one.
class APassThatThrows : public ::testing::TestWithParam<int> {};

void throw_one_of(int kind) {
  if (kind == 0) (void)Json(5).at("metadata");
  if (kind == 1) throw std::logic_error("no such condition");
  if (kind == 2) (void)std::vector<int>().at(7);
  if (kind == 3) (void)std::optional<int>().value();
}

TEST_P(APassThatThrows, CostsItsOwnJobAlone) {
  spdlog::set_level(spdlog::level::off);
  bool odd = true;
  int thrown = 0;
  Passes passes([&](const Observed& observed, Time now) {
    if (odd && observed.name == "a-odd") {
      ++thrown;
      throw_one_of(GetParam());
    }
    return reconcile(observed, now);
  });
  passes.submit("a-odd");
  passes.submit("b-good");
  passes.turns(10);
  EXPECT_EQ(passes.pods_of("b-good"), 2);
  EXPECT_EQ(passes.pods_of("a-odd"), 0);
  EXPECT_EQ(thrown, 1) << "it rests before it is tried again";
  EXPECT_EQ(passes.status_of("a-odd").reason, "OperatorError");
  EXPECT_TRUE(is_true(passes.status_of("a-odd").conditions, "Stalled")) << "its user is told";
  EXPECT_FALSE(is_true(passes.status_of("b-good").conditions, "Stalled"));
  passes.turns(10);
  EXPECT_EQ(thrown, 2);
  odd = false;
  passes.turns(30);
  EXPECT_EQ(passes.pods_of("a-odd"), 2) << "it is forgotten by nobody";
  EXPECT_EQ(find_condition(passes.status_of("a-odd").conditions, "Stalled"), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Controller, APassThatThrows, ::testing::Range(0, 4));

/// An admission webhook of somebody else's that cannot be reached: 500, for a pod or for an object beside it.
TEST(Controller, WhatTheServerCannotCreateIsToldAfterThreeTries) {
  spdlog::set_level(spdlog::level::off);
  for (const char* collection : {"/pods", "/configmaps", "/services"}) {
    Passes passes(reconcile);
    passes.refuse(collection, 500);
    passes.submit("j");
    passes.turns(40);
    const OwnStatus told = passes.status_of("j");
    const Condition* scheduled = find_condition(told.conditions, "Scheduled");
    ASSERT_NE(scheduled, nullptr) << collection;
    EXPECT_EQ(scheduled->reason, "CannotCreate") << collection;
    EXPECT_NE(scheduled->message.find("j"), std::string::npos) << scheduled->message;
    EXPECT_EQ(told.reason, "CannotCreate") << collection;
    passes.refuse("/nothing", 500);
    passes.turns(120);
    EXPECT_EQ(passes.pods_of("j"), 2) << collection;
    const OwnStatus later = passes.status_of("j");
    EXPECT_NE(find_condition(later.conditions, "Scheduled")->reason, "CannotCreate") << collection;
  }
}

/// A server whose namespace is being deleted.
class EndingNamespace final : public kube::Transport {
 public:
  std::expected<kube::Response, kube::NetError> call(const kube::Request& request,
                                                     const kube::Cancel& cancel) override {
    if (!ends || request.method != "POST") return server.call(request, cancel);
    ++refused;
    const Json answer = {{"kind", "Status"},
                         {"code", 403},
                         {"reason", "Forbidden"},
                         {"message",
                          "pods \"j-worker-0-1\" is forbidden: unable to create new content in "
                          "namespace n because it "
                          "is being terminated"}};
    return kube::Response{403, {}, answer.dump()};
  }
  std::expected<kube::StreamResponse, kube::NetError> open(const kube::Request& request,
                                                           const kube::Cancel& cancel) override {
    return server.open(request, cancel);
  }
  kube::testing::FakeApiServer server;
  bool ends = false;
  int refused = 0;
};

/// The job may stay there for long, if somebody's finalizer keeps the namespace.
TEST(Controller, InANamespaceThatEndsNothingIsTriedOften) {
  spdlog::set_level(spdlog::level::off);
  EndingNamespace transport;
  transport.server.serve(jobs_resource(), true);
  transport.server.serve(pod_groups_resource(), true);
  sim::SimClock clock;
  sim::Chance chance{1};
  kube::Client user(transport, clock);
  create_job(user, "j");
  transport.ends = true;
  sim::SimOperator op(transport, clock, chance, nullptr);
  for (int i = 0; i < 120; ++i) {
    clock.now += Seconds(1);
    op.turn();
  }
  const auto status =
      own_status_from_json(own_part(transport.server.objects(jobs_resource())[0]["status"]));
  const Condition* scheduled = find_condition(status.conditions, "Scheduled");
  ASSERT_NE(scheduled, nullptr);
  EXPECT_EQ(scheduled->reason, "NamespaceTerminating");
  EXPECT_NE(scheduled->message.find("being terminated"), std::string::npos);
  // A pass tries at most one object of each kind that needs no other; with every pass 15 s apart.
  EXPECT_LE(transport.refused, 10 * 16);
  const int before = transport.refused;
  for (int i = 0; i < 60; ++i) {
    clock.now += Seconds(1);
    op.turn();
  }
  EXPECT_LE(transport.refused - before, 5 * 8) << "every 15 s at most";
}

/// A job that was accepted and then edited to something refused, and a controller whose cache has the job
/// and no child of it.
class RefusedEdit : public ::testing::Test {
 protected:
  RefusedEdit() {
    spdlog::set_level(spdlog::level::off);
    server_.serve(jobs_resource(), true);
    server_.serve(pod_groups_resource(), true);
    create_job(client_, "j");
    sim::SimOperator before(server_, clock_, chance_, nullptr);
    for (int i = 0; i < 5; ++i) {
      clock_.now += Seconds(1);
      before.turn();
    }
    config_ = job()["status"]["configMapName"];
    server_.edit(jobs_resource(), "n", "j", [](Json& object) {
      object["spec"]["deepspeed"]["config"]["zero_optimization"]["stage"] = 9;
    });
  }

  Json job() { return server_.objects(jobs_resource())[0]; }

  /// What the next pass decides on; nullopt: it decided nothing.
  std::optional<Observed> decided() {
    std::optional<Observed> seen;
    Cache cache([](const std::string&) {});
    Queue queue;
    NoEvents events;
    Watcher watcher;
    Controller controller(client_, cache, queue, events,
                          {.may_write = [] { return true; },
                           .decide =
                               [&](const Observed& observed, Time) {
                                 seen = observed;
                                 return Plan();
                               }},
                          watcher);
    cache.sink(jobspec::kKind).upserted(job());
    EXPECT_TRUE(cache.observe("n/j").children.empty());
    queue.add("n/j", clock_.now);
    EXPECT_TRUE(controller.step(clock_, clock_.at()));
    EXPECT_EQ(queue.failing(), seen ? 0u : 1u) << "it is tried again";
    return seen;
  }

  kube::testing::FakeApiServer server_;
  sim::SimClock clock_;
  sim::Chance chance_{1};
  kube::Client client_{server_, clock_, {.attempts = 1}};
  std::string config_;
};

TEST_F(RefusedEdit, TheServerHasTheSpecInForceThatTheCacheLacks) {
  const auto seen = decided();
  ASSERT_TRUE(seen);
  EXPECT_FALSE(seen->wanted.accepted);
  ASSERT_TRUE(seen->in_force);
  EXPECT_EQ(seen->in_force->job.replicas, 2);
  EXPECT_EQ("j-config-" + seen->in_force->revision, config_);
}

/// The operator that accepted it had fewer checks.
TEST_F(RefusedEdit, WhatWasAcceptedStaysInForceWhateverIsCheckedToday) {
  server_.edit(kube::resources::config_maps(), "n", config_, [](Json& object) {
    Json spec = Json::parse(object["data"]["spec.json"].get<std::string>());
    spec["workers"]["template"] = Json::parse(R"({"metadata": {"annotations":
        {"training.dsj.dev/avoided-nodes": "n", "mine": "1"}}, "spec": {"containers": [{"name": "worker"}]}})");
    object["data"]["spec.json"] = spec.dump();
  });
  const auto seen = decided();
  ASSERT_TRUE(seen);
  EXPECT_FALSE(seen->wanted.accepted);
  ASSERT_TRUE(seen->in_force);
  EXPECT_EQ(seen->in_force->job.replicas, 2);
  const Json pod = render_pod(*seen, *seen->in_force, {}, 0, 1).object;
  EXPECT_EQ(pod["metadata"]["annotations"]["mine"], "1");
  EXPECT_FALSE(pod["metadata"]["annotations"].contains("training.dsj.dev/avoided-nodes"));
}

TEST_F(RefusedEdit, NothingIsDecidedWhileTheServerCannotBeAsked) {
  server_.set_fault([](const kube::Request& request) {
    using Fault = kube::testing::Fault;
    return request.path.contains("/configmaps/") ? Fault{.kind = Fault::Kind::LoseAnswer} : Fault{};
  });
  EXPECT_FALSE(decided());
}

TEST_F(RefusedEdit, AConfigMapThatIsGoneOrAnothersIsNotInForce) {
  server_.edit(kube::resources::config_maps(), "n", config_, [](Json& object) {
    object["metadata"]["ownerReferences"][0]["uid"] = "another-job";
  });
  auto seen = decided();
  ASSERT_TRUE(seen);
  EXPECT_FALSE(seen->in_force);
  ASSERT_TRUE(client_.remove(kube::resources::config_maps(), "n", config_));
  seen = decided();
  ASSERT_TRUE(seen);
  EXPECT_FALSE(seen->in_force);
}

/// Somebody deletes the ConfigMap, and an edit is refused before the operator has made another: the operator that accepted
/// the last spec still has it.
TEST(Controller, ARefusedEditBesideADeletedConfigMapTakesNoSpecOutOfForce) {
  spdlog::set_level(spdlog::level::off);
  for (const bool edit_first : {false, true}) {
    for (const bool deaf : {false, true}) {
      kube::testing::FakeApiServer server;
      server.serve(jobs_resource(), true);
      server.serve(pod_groups_resource(), true);
      sim::SimClock clock;
      sim::Chance chance{1};
      kube::Client user(server, clock, {.attempts = 1});
      create_job(user, "j");
      sim::SimOperator op(server, clock, chance, nullptr);
      const auto turns = [&](int count) {
        for (int i = 0; i < count; ++i) {
          clock.now += Seconds(1);
          op.turn();
        }
      };
      const auto job = [&] { return server.objects(jobs_resource())[0]; };
      turns(5);
      const std::string config = job()["status"]["configMapName"],
                        revision = job()["status"]["revision"];
      const Json kept = *user.get(kube::resources::config_maps(), "n", config);
      const auto refused_edit = [&] {
        server.edit(jobs_resource(), "n", "j", [](Json& object) {
          object["spec"]["deepspeed"]["config"]["zero_optimization"]["stage"] = 9;
          object["spec"]["workers"]["replicas"] = 7;
          object["metadata"]["generation"] = object["metadata"]["generation"].get<int64_t>() + 1;
        });
      };
      const std::string what =
          std::string(edit_first ? "edit first" : "deletion first") + (deaf ? ", seen late" : "");
      op.deaf = deaf;
      if (edit_first) refused_edit();
      ASSERT_TRUE(user.remove(kube::resources::config_maps(), "n", config)) << what;
      if (!edit_first) refused_edit();
      turns(3);
      op.deaf = false;
      turns(20);
      const OwnStatus status = own_status_from_json(own_part(job()["status"]));
      EXPECT_FALSE(is_true(status.conditions, "Accepted")) << what;
      const Condition* accepted = find_condition(status.conditions, "Accepted");
      ASSERT_NE(accepted, nullptr) << what;
      EXPECT_THAT(accepted->message, ::testing::HasSubstr("the previous spec stays in force"))
          << what;
      EXPECT_EQ(status.revision, revision) << what;
      EXPECT_EQ(server.objects(kube::resources::pods()).size(), 2u) << what;
      const auto again = user.get(kube::resources::config_maps(), "n", config);
      ASSERT_TRUE(again) << what << ": the pods that come later need it";
      EXPECT_EQ((*again)["data"], kept["data"]) << what;
    }
  }
}

/// A pass in which the server takes 300 ms, and an object of the job changes meanwhile.
class LongPass : public ::testing::Test {
 protected:
  LongPass() {
    server_.serve(jobs_resource(), true);
    create_job(client_, "j");
  }

  /// When the next pass is due, counted from the end of this one.
  Milliseconds next(Applied applied) {
    Cache cache([](const std::string&) {});
    Queue queue(Milliseconds(100));
    NoEvents events;
    Watcher watcher;
    Controller controller(client_, cache, queue, events,
                          {.may_write = [] { return true; },
                           .decide = [](const Observed&, Time) { return Plan(); },
                           .carry_out =
                               [&](auto&&...) {
                                 clock_.now += Milliseconds(300);
                                 queue.add("n/j", clock_.now);
                                 return applied;
                               }},
                          watcher);
    cache.sink(jobspec::kKind).upserted(server_.objects(jobs_resource())[0]);
    queue.add("n/j", clock_.now);
    EXPECT_TRUE(controller.step(clock_, clock_.at()));
    return queue.next().value() - clock_.now;
  }

  kube::testing::FakeApiServer server_;
  sim::SimClock clock_;
  kube::Client client_{server_, clock_, {.attempts = 1}};
};

TEST_F(LongPass, TheKeyRestsAfterIt) {
  EXPECT_EQ(next({.done = true}), Milliseconds(100));
}

TEST_F(LongPass, AFailureWaitsAfterIt) {
  EXPECT_EQ(next({.retry_after = Milliseconds(700)}), Milliseconds(700));
}

/// A job with two pods that another operator made, and a controller whose cache has the job, as the server has it, and some of
/// its pods: each kind has a watch of its own.
class LaggingPods : public ::testing::Test {
 protected:
  LaggingPods() {
    spdlog::set_level(spdlog::level::off);
    server_.serve(jobs_resource(), true);
    server_.serve(pod_groups_resource(), true);
    create_job(client_, "j");
    sim::SimOperator before(server_, clock_, chance_, nullptr);
    for (int i = 0; i < 5; ++i) {
      clock_.now += Seconds(1);
      before.turn();
    }
    EXPECT_EQ(pods().size(), 2u);
  }

  std::vector<Json> pods() { return server_.objects(kube::resources::pods()); }
  OwnStatus status() { return own_status_from_json(server_.objects(jobs_resource())[0]["status"]); }
  void edit(const std::function<void(Json&)>& change) {
    server_.edit(jobs_resource(), "n", "j", change);
  }

  /// One pass. How many pods the last decision saw.
  size_t pass(size_t pods_in_the_cache) {
    size_t seen = 0;
    Cache cache([](const std::string&) {});
    Queue queue;
    NoEvents events;
    Watcher watcher;
    Controller controller(client_, cache, queue, events,
                          {.may_write = [] { return true; },
                           .decide =
                               [&](const Observed& observed, Time now) {
                                 seen = observed.pods.size();
                                 return reconcile(observed, now);
                               }},
                          watcher);
    cache.sink(jobspec::kKind).upserted(server_.objects(jobs_resource())[0]);
    const auto all = pods();
    for (size_t i = 0; i < std::min(pods_in_the_cache, all.size()); ++i)
      cache.sink("Pod").upserted(all[i]);
    for (const auto& resource : {kube::resources::config_maps(), kube::resources::services()})
      for (const Json& object : server_.objects(resource))
        cache.sink(resource.kind).upserted(object);
    queue.add("n/j", clock_.now);
    EXPECT_TRUE(controller.step(clock_, clock_.at()));
    return seen;
  }

  kube::testing::FakeApiServer server_;
  sim::SimClock clock_;
  sim::Chance chance_{1};
  kube::Client client_{server_, clock_, {.attempts = 1}};
};

/// Seed 456 of the simulation: a new leader whose watch of pods lagged.
TEST_F(LaggingPods, AJobWithPodsThatTheCacheLacksIsNotCalledSuspended) {
  edit([](Json& object) {
    object["spec"]["suspend"] = true;
    object["status"]["training"] = {{"attempt", 1}, {"step", 3}};  // it has to save first
  });
  for (const size_t in_the_cache : {0, 1}) {
    EXPECT_EQ(pass(in_the_cache), 2u) << in_the_cache;
    EXPECT_FALSE(is_true(status().conditions, "Suspended"));
  }
}

TEST_F(LaggingPods, AJobWithoutPodsIs) {
  edit([](Json& object) { object["spec"]["suspend"] = true; });
  for (const Json& pod : pods())
    ASSERT_TRUE(client_.remove(kube::resources::pods(), "n", pod["metadata"]["name"]));
  EXPECT_EQ(pass(0), 0u);
  EXPECT_TRUE(is_true(status().conditions, "Suspended"));
  EXPECT_EQ(pass(0), 0u) << "it rests";
}

/// A worker whose pod is gone costs a restart: not one whose pod the cache lacks.
TEST_F(LaggingPods, AWorkerWhosePodTheCacheLacksIsNotCharged) {
  edit([](Json& object) { object["status"]["training"] = {{"attempt", 1}, {"step", 3}}; });
  EXPECT_EQ(pass(1), 2u);
  EXPECT_EQ(status().restarts.total, 0);
  EXPECT_EQ(pods().size(), 2u);
}

}  // namespace
}  // namespace dsj::op::testing

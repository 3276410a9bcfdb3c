// The writing thread against an API server in memory with faults.
#include "agent/status/status_publisher.h"

#include <gtest/gtest.h>

#include "agent/status/job_watch.h"
#include "job/contract.h"
#include "job/stacks_request.h"
#include "tests/kube/fake_api_server.h"
#include "tests/support/soon.h"

namespace dsj::agent {
namespace {

using kube::testing::FakeApiServer;
using kube::testing::Fault;
using nlohmann::json;

struct PublisherTest : testing::Test {
  FakeApiServer server;
  kube::Client client{server,
                      kube::system_clock(),
                      {.attempts = 1, .deadline = Time(1000), .request_timeout = Time(1000)}};
  JobName job{"team", "tune", ""};

  void SetUp() override {
    server.serve(job_resource(), true);
    const auto made = client.create(job_resource(), "team",
                                    {{"apiVersion", "training.dsj.dev/v1alpha1"},
                                     {"kind", "DeepSpeedJob"},
                                     {"metadata", {{"name", "tune"}, {"namespace", "team"}}},
                                     {"spec", {{"suspend", false}}}});
    ASSERT_TRUE(made) << made.error().to_string();
    job.uid = (*made)["metadata"]["uid"];
  }
  std::unique_ptr<StatusPublisher> publisher(int64_t attempt) {
    auto result = std::make_unique<StatusPublisher>(client, kube::system_clock(), job, 4,
                                                    StatusPace{Time(30), Time(10)});
    result->report(report::Attempt{.attempt = attempt, .world_size = 4});
    return result;
  }
  json status() {
    const auto all = server.objects(job_resource());
    return all.empty() ? json() : all[0].value("status", json::object());
  }
  static report::Step step(int64_t step) { return {.step = step, .loss = 1.25}; }
  static report::Checkpoint checkpoint(int64_t step) { return {.step = step, .path = "/c"}; }
};

TEST_F(PublisherTest, WritesItsTwoPartsAndLeavesTheRestAlone) {
  ASSERT_TRUE(client.apply(job_resource(), "team",
                           {{"apiVersion", "training.dsj.dev/v1alpha1"},
                            {"kind", "DeepSpeedJob"},
                            {"metadata", {{"name", "tune"}, {"namespace", "team"}}},
                            {"status", {{"phase", "Running"}, {"restarts", {{"total", 2}}}}}},
                           {.manager = contract::kOperatorManager, .subresource = "status"}));
  const auto writer = publisher(1);
  writer->report(step(7));
  writer->report(checkpoint(5));
  ASSERT_TRUE(soon([&] { return writer->settled() && status()["training"].contains("step"); }));
  EXPECT_EQ(status()["training"]["attempt"], 1);
  EXPECT_EQ(status()["training"]["loss"], "1.25");
  EXPECT_EQ(status()["checkpoint"]["lastSaved"]["step"], 5);
  EXPECT_EQ(status()["phase"], "Running");
  EXPECT_EQ(status()["restarts"]["total"], 2);
}

TEST_F(PublisherTest, ASuccessorKeepsTheCheckpointInEveryWrite) {
  {
    const auto first = publisher(1);
    first->report(step(7));
    first->report(checkpoint(5));
    ASSERT_TRUE(soon([&] { return first->settled(); }));
  }
  const auto second = publisher(2);
  ASSERT_TRUE(soon([&] { return status()["training"]["attempt"] == 2; }));
  for (int64_t next = 6; next < 9; ++next) {
    second->report(step(next));
    ASSERT_TRUE(soon([&] { return status()["training"]["step"] == next; }));
    EXPECT_EQ(status()["checkpoint"]["lastSaved"]["step"], 5);
  }
}

TEST_F(PublisherTest, AnOutageHidesNothingForGood) {
  const auto writer = publisher(1);
  ASSERT_TRUE(soon([&] { return writer->settled(); }));
  server.set_fault([](const kube::Request&) { return Fault{Fault::Kind::LoseRequest}; });
  for (int64_t i = 1; i <= 1000; ++i) writer->report(step(i));  // never blocks
  writer->report(checkpoint(900));
  ASSERT_TRUE(soon([&] { return writer->counts().failures > 0; }));
  EXPECT_FALSE(writer->settled());
  server.set_fault([](const kube::Request&) { return Fault{}; });
  ASSERT_TRUE(soon([&] { return writer->settled(); }));
  EXPECT_EQ(status()["checkpoint"]["lastSaved"]["step"], 900);
  EXPECT_EQ(status()["training"]["step"], 1000) << "the latest, not every one";
}

TEST_F(PublisherTest, AnAnswerThatWasLostIsNoHarm) {
  int lost = 0;
  server.set_fault([&](const kube::Request& request) {
    if (request.method == "PATCH" && ++lost <= 3) return Fault{Fault::Kind::LoseAnswer};
    return Fault{};
  });
  const auto writer = publisher(2);
  ASSERT_TRUE(soon([&] { return writer->settled(); }));
  EXPECT_EQ(lost, 4);
  EXPECT_EQ(status()["training"]["attempt"], 2);
}

TEST_F(PublisherTest, AStaleAgentNeverPublishesAgain) {
  const auto old_one = publisher(1);
  ASSERT_TRUE(soon([&] { return old_one->settled(); }));
  const auto new_one = publisher(2);
  ASSERT_TRUE(soon([&] { return new_one->settled(); }));
  old_one->report(step(500));
  old_one->report(checkpoint(500));  // it was stopped and goes on now
  ASSERT_TRUE(soon([&] { return old_one->state() == StatusPublisher::State::Superseded; }));
  EXPECT_EQ(status()["training"]["attempt"], 2);
  EXPECT_FALSE(status().contains("checkpoint"));
  EXPECT_TRUE(old_one->settled()) << "there is nothing it may still write";
}

// A job is read before the first write and when somebody else wrote; the answer to a write is as good.
TEST_F(PublisherTest, AWriteInPeaceIsOneRequestAndSmall) {
  const auto gets = [&] { return server.requests("GET"); };
  const auto writer = publisher(1);
  json config;
  for (int key = 0; key < 200; ++key)
    config["key_" + std::to_string(key)] = "a value of some length";
  writer->report(report::Resolved{.config = config, .total_steps = 100});
  ASSERT_TRUE(soon([&] { return status()["training"].contains("resolvedConfig"); }));
  ASSERT_TRUE(soon([&] { return writer->settled(); }));
  EXPECT_EQ(gets(), 1);
  const int64_t patches = server.requests("PATCH");
  std::atomic<size_t> longest = 0;
  server.set_fault([&](const kube::Request& request) {
    if (request.method == "PATCH") longest = std::max<size_t>(longest, request.body.size());
    return Fault{};
  });
  for (int64_t next = 1; next <= 5; ++next) {
    writer->report(step(next));
    ASSERT_TRUE(soon([&] { return status()["training"]["step"] == next; }));
  }
  EXPECT_EQ(server.requests("PATCH"), patches + 5);
  EXPECT_EQ(gets(), 1);
  EXPECT_LT(longest, 1000u) << "the config is " << config.dump().size() << " bytes";
  EXPECT_EQ(status()["training"]["resolvedConfig"], config) << "it stays";
  server.edit(job_resource(), "team", "tune",
              [](kube::Json& object) { object["status"]["phase"] = "Running"; });
  writer->report(step(6));
  ASSERT_TRUE(soon([&] { return status()["training"]["step"] == 6; }));
  EXPECT_EQ(gets(), 2) << "somebody else wrote";
}

TEST_F(PublisherTest, AnAttemptPublishedBetweenItsReadAndItsWriteStopsItToo) {
  const auto old_one = publisher(1);
  ASSERT_TRUE(soon([&] { return old_one->settled(); }));
  std::atomic<bool> raced = false;
  server.set_fault([&](const kube::Request& request) {
    if (request.method == "PATCH" && !raced.exchange(true)) {
      return Fault{Fault::Kind::Refuse, 409};  // as if its resourceVersion were of yesterday
    }
    return Fault{};
  });
  server.edit(job_resource(), "team", "tune",
              [](kube::Json& object) { object["status"]["training"]["attempt"] = 2; });
  old_one->report(checkpoint(500));
  ASSERT_TRUE(soon([&] { return old_one->state() == StatusPublisher::State::Superseded; }));
  EXPECT_FALSE(status().contains("checkpoint"));
}

TEST_F(PublisherTest, AnotherJobOfTheSameNameIsNotWritten) {
  const auto writer = publisher(1);
  ASSERT_TRUE(soon([&] { return writer->settled(); }));
  ASSERT_TRUE(client.remove(job_resource(), "team", "tune"));
  SetUp();
  writer->report(checkpoint(5));
  ASSERT_TRUE(soon([&] { return writer->state() == StatusPublisher::State::JobGone; }));
  EXPECT_TRUE(status().empty());
}

TEST_F(PublisherTest, RefusalsAreToldFromAbsence) {
  server.set_fault([](const kube::Request&) { return Fault{Fault::Kind::Refuse, 403}; });
  const auto writer = publisher(1);
  ASSERT_TRUE(soon([&] { return writer->refused_for() > Time(0); }));
  server.set_fault([](const kube::Request&) { return Fault{}; });
  ASSERT_TRUE(soon([&] { return writer->settled(); }));
  EXPECT_EQ(writer->refused_for(), Time(0));
}

TEST_F(PublisherTest, TheWatchSeesSuspensionRevisionAndDeletion) {
  JobWatch watch(client, kube::system_clock(), "team", "tune");
  ASSERT_TRUE(soon([&] { return watch.view().has_value(); }));
  EXPECT_EQ(watch.view()->uid, job.uid);
  EXPECT_EQ(stop_reason(*watch.view(), "r1"), "");
  server.edit(job_resource(), "team", "tune",
              [](kube::Json& object) { object["status"]["revision"] = "r1"; });
  ASSERT_TRUE(soon([&] { return watch.view()->revision == "r1"; }));
  EXPECT_EQ(stop_reason(*watch.view(), "r1"), "");
  EXPECT_NE(stop_reason(*watch.view(), "r0"), "");
  server.edit(job_resource(), "team", "tune",
              [](kube::Json& object) { object["spec"]["suspend"] = true; });
  ASSERT_TRUE(soon([&] { return watch.view()->suspend; }));
  EXPECT_EQ(stop_reason(*watch.view(), "r1"), "the job is suspended");
  server.cut_watches();
  server.edit(job_resource(), "team", "tune",
              [](kube::Json& object) { object["spec"]["suspend"] = false; });
  ASSERT_TRUE(soon([&] { return !watch.view()->suspend; })) << "after a cut watch";
  ASSERT_TRUE(client.remove(job_resource(), "team", "tune"));
  ASSERT_TRUE(soon([&] { return watch.view()->deleted; }));
}

/// kubectl delete --cascade=orphan: whoever deletes a job that way wants its pods to go on.
TEST_F(PublisherTest, AnOrphanedGangGoesOn) {
  JobWatch watch(client, kube::system_clock(), "team", "tune");
  ASSERT_TRUE(soon([&] { return watch.view().has_value(); }));
  server.edit(job_resource(), "team", "tune", [](kube::Json& object) {
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
    object["metadata"]["finalizers"] = {"orphan"};
  });
  ASSERT_TRUE(soon([&] { return watch.view()->deleted; }));
  EXPECT_EQ(stop_reason(*watch.view(), ""), "");
  server.edit(job_resource(), "team", "tune",
              [](kube::Json& object) { object["metadata"]["finalizers"] = kube::Json::array(); });
  usleep(300'000);
  EXPECT_TRUE(watch.view()->deleted);
  EXPECT_EQ(stop_reason(*watch.view(), ""), "") << "the finalizer goes before the job does";
  const JobView other = job_view(json::parse(
      R"({"metadata":{"uid":"u","deletionTimestamp":"t","finalizers":["foregroundDeletion"]}})"));
  EXPECT_EQ(stop_reason(other, ""), "the job is being deleted");
}

TEST_F(PublisherTest, AJobThatGoesWhileNoWatchIsOpenIsSeenToBeGone) {
  JobWatch watch(client, kube::system_clock(), "team", "tune");
  ASSERT_TRUE(soon([&] { return watch.view().has_value(); }));
  server.set_fault([](const kube::Request& request) {
    return request.method == "DELETE" ? Fault{} : Fault{Fault::Kind::LoseRequest};
  });
  server.cut_watches();
  ASSERT_TRUE(client.remove(job_resource(), "team", "tune"));
  server.compact();  // no watch can tell of it any more
  server.set_fault([](const kube::Request&) { return Fault{}; });
  ASSERT_TRUE(soon([&] { return watch.view()->deleted; }));
  EXPECT_EQ(stop_reason(*watch.view(), ""), "the job is being deleted");
}

TEST_F(PublisherTest, AJobThatWasGoneBeforeTheFirstLookIsSeenToBeGone) {
  ASSERT_TRUE(client.remove(job_resource(), "team", "tune"));
  JobWatch watch(client, kube::system_clock(), "team", "tune");
  ASSERT_TRUE(soon([&] { return watch.view().has_value(); }));
  EXPECT_EQ(stop_reason(*watch.view(), "r1"), "the job is being deleted");
  EXPECT_EQ(watch.view()->uid, "");
}

TEST(JobView, DecidesHowLongRefusalsAreTaken) {
  JobView job{.uid = "u"};
  EXPECT_EQ(refusals_taken(std::nullopt, false), Time(60'000));
  EXPECT_EQ(refusals_taken(job, false), Time(60'000)) << "a Role is mended";
  EXPECT_EQ(refusals_taken(job, true), Time(5'000));
  EXPECT_EQ(refusals_taken(std::nullopt, true), Time(5'000)) << "deleted before the first look";
  job.deleted = true;
  EXPECT_EQ(refusals_taken(job, false), Time(0));
}

TEST(JobView, ReadsTheOperatorsRestarts) {
  const JobView view = job_view(json::parse(R"({"metadata":{"uid":"u"},"status":{
      "restarts":{"limit":3,"counted":2,"total":5,"savedStep":40,"attempt":4},"training":{"attempt":6}}})"));
  ASSERT_TRUE(view.restarts);
  EXPECT_EQ(view.restarts->limit, 3);
  EXPECT_EQ(view.restarts->used, 2);
  EXPECT_EQ(view.restarts->total, 5);
  EXPECT_EQ(view.restarts->saved_step, 40);
  EXPECT_EQ(view.accounted, 4);
  EXPECT_EQ(view.failed, "");
  EXPECT_EQ(view.attempt, 6);
  EXPECT_EQ(view.stacks, 0);
  const auto asked = [](const char* text) {
    return job_view({{"metadata", {{"annotations", {{kAnnotationStacks, text}}}}}}).stacks;
  };
  EXPECT_EQ(asked("1763845200000"), 1763845200000);
  for (const char* wrong : {"", "soon", "17x", "-3", "99999999999999999999"}) {
    EXPECT_EQ(asked(wrong), 0) << wrong;
  }
  const JobView odd = job_view(json::parse(R"({"spec":{"suspend":"yes"},"status":[]})"));
  EXPECT_FALSE(odd.suspend);
  EXPECT_FALSE(odd.restarts);
}

}  // namespace
}  // namespace dsj::agent

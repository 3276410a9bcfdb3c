// Objects that somebody else keeps changing back or deleting: writes become rare, and the condition names the object,
// the field and the writer.
#include "operator/observe/contest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job/contract.h"
#include "operator/observe/pace.h"
#include "tests/operator/one_job.h"

namespace dsj::op::testing {
namespace {

using ::testing::HasSubstr;
using Foe = std::function<void(Json&)>;

class ContestTest : public ::testing::Test {
 protected:
  ContestTest() {
    job_.submit();
    job_.turns(30);
  }
  Condition contested() const { return job_.condition(kContested); }

  OneJob job_;
  kube::testing::FakeApiServer& server_ = job_.server;
};

/// What a write and its pauses allow in an hour: 1, 2, 4 ... 256 s, then every 300 s.
constexpr int kWritesInAnHour = 2 + 9 + 12;

struct Change {
  const char* kind;
  const char* field;
  Foe foe;
};
const Change kChanges[] = {
    {"Service", "spec.selector.mesh", [](Json& it) { it["spec"]["selector"]["mesh"] = "on"; }},
    {"Service", "metadata.labels",
     [](Json& it) { it["metadata"]["labels"].erase(contract::kLabelManagedBy); }},
    {"Service", "metadata.labels",
     [](Json& it) { it["metadata"]["labels"][contract::kLabelJobName] = "k"; }},
    {"Role", "rules", [](Json& it) { it["rules"][0]["verbs"] = Json::array({"get"}); }},
    {"RoleBinding", "subjects", [](Json& it) { it["subjects"] = Json::array(); }},
    {"NetworkPolicy", "spec.ingress",
     [](Json& it) { it["spec"]["ingress"] = Json::array({Json::object()}); }}};

/// mongodb/mongodb-kubernetes-operator 1732 (Kyverno), prometheus-operator/prometheus-operator 8049 (GKE Autopilot): two
/// controllers write an object in turn for ever.
TEST_F(ContestTest, WhatIsChangedBackAgainAndAgainIsWrittenRarelyAndNamed) {
  for (const Change& change : kChanges) {
    SCOPED_TRACE(std::string(change.kind) + " " + change.field);
    const auto resource = resource_of(change.kind);
    job_.writes.clear();
    const auto foe = [&] {
      server_.edit(resource, "n", "j-worker", [&](Json& object) {
        change.foe(object);
        object["metadata"]["managedFields"] =
            Json::array({{{"manager", "dsj-operator"}, {"time", "2026-12-01T00:00:00Z"}},
                         {{"manager", "argocd-controller"}, {"time", "2026-11-01T00:00:00Z"}}});
      });
    };
    job_.turns(3600, foe);
    EXPECT_GT(job_.most_writes(), 5);
    EXPECT_LE(job_.most_writes(), kWritesInAnHour);
    EXPECT_EQ(contested().reason, "Reverted");
    EXPECT_THAT(contested().message, HasSubstr(std::string(change.kind) + " j-worker: "));
    EXPECT_THAT(contested().message, HasSubstr(change.field));
    EXPECT_THAT(contested().message, HasSubstr("last by argocd-controller"));
    // It gives up: the object is restored after the last pause, and the condition goes.
    job_.turns(301);
    EXPECT_FALSE(server_.shown(resource, "n", "j-worker")->dump().contains("argocd"))
        << "not restored";
    job_.writes.clear();
    job_.turns(700);
    EXPECT_EQ(job_.all_writes(), 0);
    EXPECT_EQ(contested().type, "");
  }
}

TEST_F(ContestTest, WhatIsDeletedAgainAndAgainIsMadeRarelyAndNamed) {
  for (const char* kind :
       {"Service", "ConfigMap", "ServiceAccount", "Role", "RoleBinding", "NetworkPolicy"}) {
    SCOPED_TRACE(kind);
    const auto resource = resource_of(kind);
    const std::string name = server_.objects(resource)[0]["metadata"]["name"];
    job_.writes.clear();
    const auto collection = resource.collection("n");
    job_.turns(3600, [&] { (void)job_.user.remove(resource, "n", name); });
    EXPECT_GT(job_.writes[collection], 5);
    EXPECT_LE(job_.writes[collection], kWritesInAnHour + 1);
    EXPECT_EQ(contested().reason, "Deleted");
    EXPECT_THAT(contested().message, HasSubstr(std::string(kind) + " " + name + " is deleted"));
    job_.turns(301);
    EXPECT_EQ(server_.objects(resource).size(), 1u);
    job_.turns(700);
    EXPECT_EQ(contested().type, "");
  }
}

/// By hand, and once: nothing to wait for.
TEST_F(ContestTest, TwoRepairsHaveNoPause) {
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(job_.user.remove(kube::resources::services(), "n", "j-worker"));
    job_.turns(1);
    EXPECT_EQ(server_.objects(kube::resources::services()).size(), 1u);
    EXPECT_EQ(contested().type, "");
  }
}

/// The operator may not patch pods. It makes no second pod beside one whose labels were changed.
TEST_F(ContestTest, APodThatLostItsLabelsIsNamedAndHasNoSuccessorBesideIt) {
  const std::vector<std::vector<const char*>> losses = {
      {contract::kLabelJobName},
      {contract::kLabelManagedBy},
      {contract::kLabelReplicaIndex},
      {contract::kLabelJobName, contract::kLabelManagedBy}};
  for (const auto& labels : losses) {
    SCOPED_TRACE(::testing::PrintToString(labels));
    const Json pod = server_.objects(kube::resources::pods())[1];
    server_.edit(kube::resources::pods(), "n", pod["metadata"]["name"], [&](Json& object) {
      for (const char* label : labels) object["metadata"]["labels"].erase(label);
    });
    job_.writes.clear();
    job_.turns(60);
    EXPECT_EQ(server_.objects(kube::resources::pods()).size(), 2u);
    EXPECT_EQ(job_.all_writes(), 0);
    if (labels.size() == 1 && labels[0] != std::string(contract::kLabelManagedBy)) {
      EXPECT_EQ(contested().reason, "LabelsChanged");
      EXPECT_THAT(contested().message,
                  HasSubstr("Pod " + pod["metadata"]["name"].get<std::string>()));
    }
    server_.edit(kube::resources::pods(), "n", pod["metadata"]["name"],
                 [&](Json& object) { object["metadata"]["labels"] = pod["metadata"]["labels"]; });
    job_.turns(60);
    EXPECT_EQ(server_.objects(kube::resources::pods()).size(), 2u);
    EXPECT_EQ(contested().type, "");
  }
}

TEST(Contests, TheWriterIsWhoHasTheFieldOrElseTheNewest) {
  const auto entry = [](const char* manager, const char* time, Json fields) {
    return Json{{"manager", manager}, {"time", time}, {"fieldsV1", std::move(fields)}};
  };
  const Json selector = {{"f:spec", {{"f:selector", {{"f:mesh", Json::object()}}}}}};
  const Json object = {
      {"metadata",
       {{"managedFields",
         Json::array({entry("mesh", "2026-01-01T00:00:00Z", selector),
                      entry("labels", "2026-02-01T00:00:00Z", {{"f:metadata", Json::object()}}),
                      entry(kube::kUserAgent, "2026-03-01T00:00:00Z", selector)})}}}};
  EXPECT_EQ(writer_of(object, "spec.selector.mesh"), "mesh");
  EXPECT_EQ(writer_of(object, "rules"), "labels");
  EXPECT_EQ(writer_of(Json::object(), "rules"), "");
  EXPECT_EQ(
      writer_of({{"metadata", {{"managedFields", Json::array({1, "x", Json::object()})}}}}, "a"),
      "");
}

}  // namespace
}  // namespace dsj::op::testing

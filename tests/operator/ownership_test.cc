// The operator changes and deletes only what belongs to its jobs, whatever names and labels the objects of others
// have. That each request names the object's uid is checked in all simulations (job_run.cc).
#include <gtest/gtest.h>

#include "job/contract.h"
#include "tests/operator/one_job.h"

namespace dsj::op::testing {
namespace {

constexpr const char* kOwnedKinds[] = {"Secret",         "ConfigMap", "Service",
                                       "ServiceAccount", "Role",      "RoleBinding",
                                       "NetworkPolicy",  "PodGroup",  "Pod"};

Json in_a_gang() {
  Json spec = quick_spec();
  spec["runPolicy"]["schedulingPolicy"] = {{"scheduler", "volcano"}};
  return spec;
}

/// The names that the operator gives to its objects.
std::vector<std::pair<std::string, Json>> names_of_a_job() {
  OneJob one;
  one.submit(in_a_gang());
  one.turns(10);
  std::vector<std::pair<std::string, Json>> all;
  for (const char* kind : kOwnedKinds) {
    const auto made = one.server.objects(resource_of(kind));
    EXPECT_FALSE(made.empty()) << kind;
    for (const Json& object : made) all.emplace_back(kind, object);
  }
  return all;
}

/// Whose the object of that name is. A job's own objects have its labels and it as their controller.
struct Stranger {
  const char* what;
  bool labels;
  Json owners;
};
const Stranger kStrangers[] = {{"nobody's", false, Json::array()},
                               {"nobody's, with the job's labels", true, Json::array()},
                               {"a ReplicaSet's", true,
                                Json::array({{{"apiVersion", "apps/v1"},
                                              {"kind", "ReplicaSet"},
                                              {"name", "r"},
                                              {"uid", "set"},
                                              {"controller", true}}})},
                               {"a DeepSpeedJob's of another group", true,
                                Json::array({{{"apiVersion", "example.com/v1"},
                                              {"kind", jobspec::kKind},
                                              {"name", "j"},
                                              {"uid", "x"},
                                              {"controller", true}}})}};

TEST(Ownership, WhatBelongsToOthersIsNeitherChangedNorDeleted) {
  int cases = 0;
  for (const auto& [kind, made] : names_of_a_job()) {
    for (const Stranger& stranger : kStrangers) {
      SCOPED_TRACE(kind + ", " + stranger.what);
      OneJob one;
      Json object = made;
      for (const char* stamp : {"uid", "resourceVersion", "creationTimestamp", "generation"})
        object["metadata"].erase(stamp);
      if (!stranger.labels) object["metadata"].erase("labels");
      object["metadata"]["ownerReferences"] = stranger.owners;
      const auto resource = resource_of(kind);
      const Json before = *one.user.create(resource, "n", object);
      one.submit(in_a_gang());
      one.turns(15);
      ASSERT_TRUE(one.user.remove(jobs_resource(), "n", "j"));
      one.turns(15);
      const auto after = one.server.shown(resource, "n", before["metadata"]["name"]);
      ASSERT_TRUE(after) << "it is deleted";
      EXPECT_EQ(*after, before);
      ++cases;
    }
  }
  EXPECT_GE(cases, 40);
}

/// The operator that loses its job has only the labels and the owner to go by.
TEST(Ownership, ObjectsOfOthersWithAGoneJobsLabelsStay) {
  for (const auto& [kind, made] : names_of_a_job()) {
    SCOPED_TRACE(kind);
    OneJob one;
    Json object = made;
    for (const char* stamp : {"uid", "resourceVersion", "creationTimestamp", "generation"})
      object["metadata"].erase(stamp);
    object["metadata"]["labels"][contract::kLabelJobName] = "gone";
    object["metadata"]["ownerReferences"] = kStrangers[2].owners;
    const Json before = *one.user.create(resource_of(kind), "n", object);
    one.op.emplace(one.server, one.clock, one.chance, nullptr);
    one.turns(10);
    const auto after = one.server.shown(resource_of(kind), "n", before["metadata"]["name"]);
    ASSERT_TRUE(after) << "it is deleted";
    EXPECT_EQ(*after, before);
  }
}

}  // namespace
}  // namespace dsj::op::testing

// Where a job waits, as printed by `dsj describe`.
#include "cli/cluster/queue_place.h"

#include "tests/cli/cluster/world.h"

namespace dsj::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class QueuePlace : public testing::World {
 protected:
  void add_waiting(const char* scheduler) {
    add_job("tune", [&](Json& job) {
      job["spec"]["runPolicy"]["schedulingPolicy"] = {{"scheduler", scheduler}, {"queue", "gpu"}};
    });
    add_pod("tune", 0, 1, "Pending", {});
    server_->edit(kube::resources::pods(), "team", "tune-worker-0-1", [](Json& pod) {
      pod["metadata"]["labels"][contract::kLabelGang] = "tune-group-1";
      pod["spec"].erase("nodeName");
    });
  }
  void set_node() {
    server_->edit(kube::resources::pods(), "team", "tune-worker-0-1",
                  [](Json& pod) { pod["spec"]["nodeName"] = "node-1"; });
  }
  void serve(const kube::Resource& resource, const std::string& ns, Json object) {
    server_->serve(resource, true);
    add(resource, ns, std::move(object));
  }
  void add(const kube::Resource& resource, const std::string& ns, Json object) {
    object["apiVersion"] = resource.api_version();
    object["kind"] = resource.kind;
    ASSERT_TRUE(client_.create(resource, ns, object));
  }
  std::string described() {
    EXPECT_EQ(run(run_describe, {"tune"}), 0) << err_;
    return out_;
  }
  /// The fake server's form of Kueue's subresource of a queue.
  static kube::Resource pending() {
    return {"visibility.kueue.x-k8s.io", "v1beta1/namespaces/team/localqueues/gpu",
            "pendingworkloads", "PendingWorkload", false};
  }
};

TEST_F(QueuePlace, IsKueuesPosition) {
  add_waiting("kueue");
  EXPECT_THAT(described(), HasSubstr("LocalQueue gpu: the place in it cannot be read"));
  serve(pending(), "",
        {{"metadata", {{"name", "other"}}},
         {"positionInLocalQueue", 0},
         {"positionInClusterQueue", 5}});
  EXPECT_THAT(described(), HasSubstr("LocalQueue gpu: not among the pending workloads"));
  add(pending(), "",
      {{"metadata", {{"name", "tune-group-1"}}},
       {"positionInLocalQueue", 1},
       {"positionInClusterQueue", 7}});
  EXPECT_THAT(described(),
              HasSubstr("LocalQueue gpu: 1 job before it, 7 jobs in the ClusterQueue\n"));
  serve(
      {"kueue.x-k8s.io", "v1beta1", "workloads", "Workload"}, "team",
      {{"metadata", {{"name", "tune-group-1"}}},
       {"status",
        {{"conditions", Json::array({{{"type", "QuotaReserved"},
                                      {"status", "False"},
                                      {"message", "insufficient quota for nvidia.com/gpu"}}})}}}});
  server_->edit({"kueue.x-k8s.io", "v1beta1", "workloads", "Workload"}, "team", "tune-group-1",
                [](Json& object) {
                  object["status"]["conditions"] =
                      Json::array({{{"type", "QuotaReserved"},
                                    {"status", "False"},
                                    {"message", "insufficient quota for nvidia.com/gpu"}}});
                });
  EXPECT_THAT(described(), HasSubstr("in the ClusterQueue; insufficient quota for nvidia"));
  set_node();
  EXPECT_THAT(described(), Not(HasSubstr("LocalQueue")));
}

TEST_F(QueuePlace, IsReadFromANewerKueue) {
  add_waiting("kueue");
  serve({"visibility.kueue.x-k8s.io", "v1beta2/namespaces/team/localqueues/gpu", "pendingworkloads",
         "PendingWorkload", false},
        "",
        {{"metadata", {{"name", "tune-group-1"}}},
         {"positionInLocalQueue", 2},
         {"positionInClusterQueue", 2}});
  const kube::Resource workloads{"kueue.x-k8s.io", "v1beta2", "workloads", "Workload"};
  serve(workloads, "team", {{"metadata", {{"name", "tune-group-1"}}}});
  server_->edit(workloads, "team", "tune-group-1", [](Json& object) {
    object["status"]["conditions"] = Json::array(
        {{{"type", "QuotaReserved"}, {"status", "False"}, {"message", "no quota for cpu"}}});
  });
  EXPECT_THAT(described(),
              HasSubstr("2 jobs before it, 2 jobs in the ClusterQueue; no quota for cpu"));
}

TEST_F(QueuePlace, IsTheStateOfVolcanosGroup) {
  add_waiting("volcano");
  EXPECT_THAT(described(), HasSubstr("PodGroup tune-group-1: "));
  const kube::Resource groups{"scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"};
  const kube::Resource queues{"scheduling.volcano.sh", "v1beta1", "queues", "Queue", false};
  serve(groups, "team", {{"metadata", {{"name", "tune-group-1"}}}, {"spec", {{"queue", "gpu"}}}});
  server_->edit(groups, "team", "tune-group-1", [](Json& object) {
    object["status"] = {
        {"phase", "Inqueue"},
        {"conditions",
         Json::array(
             {{{"type", "Unschedulable"}, {"status", "True"}, {"message", "2/2 tasks in gang"}}})}};
  });
  EXPECT_THAT(described(), HasSubstr("Volcano's gpu: the group is Inqueue; 2/2 tasks in gang"));
  serve(queues, "", {{"metadata", {{"name", "gpu"}}}});
  server_->edit(queues, "", "gpu", [](Json& object) {
    object["status"] = {{"pending", 3}, {"inqueue", 1}};
  });
  EXPECT_THAT(described(),
              HasSubstr("the group is Inqueue, with 3 Pending and 1 Inqueue in the queue; 2/2"));
}

TEST_F(QueuePlace, IsEmptyWithoutAQueue) {
  add_job("tune");
  add_pod("tune", 0, 1, "Pending", {});
  EXPECT_THAT(described(), Not(HasSubstr("Queue:")));
}

}  // namespace
}  // namespace dsj::cli

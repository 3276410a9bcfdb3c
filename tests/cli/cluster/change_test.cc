#include "job/spec/cluster_spec.h"
#include "tests/cli/cluster/world.h"

namespace dsj::cli {
namespace {

using ::testing::HasSubstr;

class Change : public testing::World {
 protected:
  Json spec() { return (*client_.get(jobs_resource(), "team", "quick"))["spec"]; }
};

TEST_F(Change, ScaleSetsTheWorkers) {
  add_job("quick");
  ASSERT_EQ(run(run_scale, {"quick", "--replicas", "4"}), 0) << err_;
  EXPECT_EQ(spec()["workers"]["replicas"], 4);
  EXPECT_EQ(spec()["workers"]["slotsPerWorker"], 2);
  EXPECT_THAT(out_, HasSubstr("2 workers become 4 after one saved step"));
  EXPECT_EQ(run(run_scale, {"quick", "--replicas", "4"}), 0);
  EXPECT_THAT(out_, HasSubstr("already"));
}

TEST_F(Change, DashOPrintsTheChangedJob) {
  add_job("quick");
  ASSERT_EQ(run(run_scale, {"quick", "--replicas", "4", "-o", "json"}), 0) << err_;
  EXPECT_EQ(Json::parse(out_)["spec"]["workers"]["replicas"], 4);
  EXPECT_THAT(err_, HasSubstr("2 workers become 4"));
  ASSERT_EQ(run(run_restart, {"quick", "-o", "name"}), 0) << err_;
  EXPECT_EQ(out_, "quick\n");
  EXPECT_EQ(run(run_scale, {"none", "--replicas", "4", "-o", "json"}), kExitNotFound);
  EXPECT_EQ(out_, "");
}

TEST_F(Change, ScaleChecksItsPrecondition) {
  add_job("quick");
  EXPECT_EQ(run(run_scale, {"quick", "--replicas", "4", "--current-replicas", "3"}), 1);
  EXPECT_THAT(err_, HasSubstr("it has 2 workers, not 3"));
  EXPECT_EQ(spec()["workers"]["replicas"], 2);
  EXPECT_EQ(run(run_scale, {"quick", "--replicas", "0"}), 2);
  EXPECT_EQ(run(run_scale, {"quick"}), 2);
}

/// The operator accepts the edited job, even if it had no template before.
TEST_F(Change, RestartChangesTheTemplate) {
  add_job("quick");
  ASSERT_EQ(run(run_restart, {"quick"}), 0) << err_;
  const Json once = spec();
  EXPECT_TRUE(jobspec::check_cluster_spec("quick", once, std::nullopt).resolution.runnable());
  clock_.sleep(kube::Milliseconds(10), stop_);
  ASSERT_EQ(run(run_restart, {"quick"}), 0);
  EXPECT_NE(spec()["workers"]["template"], once["workers"]["template"]);
}

TEST_F(Change, AJobWithoutPodsIsNotRestarted) {
  add_job("quick", [](Json& job) { job["spec"]["suspend"] = true; });
  EXPECT_EQ(run(run_restart, {"quick"}), 1);
  EXPECT_THAT(err_, HasSubstr("dsj resume quick"));
  add_job("old");
  set_status("old", {{"phase", "Complete"}});
  EXPECT_EQ(run(run_restart, {"old"}), 1);
  EXPECT_EQ(run(run_scale, {"old", "--replicas", "3"}), 1);
  EXPECT_THAT(err_, HasSubstr("the job is over: Complete"));
}

}  // namespace
}  // namespace dsj::cli

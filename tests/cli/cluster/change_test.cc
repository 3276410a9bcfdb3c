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

/// A read after the write could fail, or show what somebody else wrote meanwhile.
TEST_F(Change, DashOPrintsTheAnswerOfTheWriteOfEachVerb) {
  add_job("quick");
  bool wrote = false;
  server_->set_fault([&](const kube::Request& request) {
    using kube::testing::Fault;
    if (wrote) return Fault{.kind = Fault::Kind::Refuse, .status = 403};
    wrote = request.method == "PATCH" || request.method == "POST";
    return Fault{};
  });
  const auto print = [&](testing::Verb verb, std::vector<std::string> args) {
    args.insert(args.end(), {"-o", "json"});
    wrote = false;
    EXPECT_EQ(run(verb, args), 0) << err_;
    EXPECT_TRUE(wrote);
    return Json::parse(out_)["spec"];
  };
  EXPECT_EQ(print(run_scale, {"quick", "--replicas", "4"})["workers"]["replicas"], 4);
  EXPECT_TRUE(print(run_restart, {"quick"})["workers"].contains("template"));
  EXPECT_EQ(print(run_suspend, {"quick"})["suspend"], true);
  EXPECT_EQ(print(run_resume, {"quick"})["suspend"], false);
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

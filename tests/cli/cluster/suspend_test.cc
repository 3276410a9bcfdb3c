#include "tests/cli/cluster/world.h"

namespace dsj::cli {
namespace {

using ::testing::HasSubstr;

class Suspend : public testing::World {
 protected:
  Json job() { return *client_.get(jobs_resource(), "team", "quick"); }
};

TEST_F(Suspend, SetsTheFieldAndPrintsIt) {
  add_job("quick");
  ASSERT_EQ(run(run_suspend, {"quick"}), 0) << err_;
  EXPECT_EQ(job()["spec"]["suspend"], true);
  EXPECT_THAT(out_, HasSubstr("all ranks save one step"));
  ASSERT_EQ(run(run_suspend, {"quick"}), 0);
  EXPECT_THAT(out_, HasSubstr("already"));
  ASSERT_EQ(run(run_resume, {"quick"}), 0);
  EXPECT_EQ(job()["spec"]["suspend"], false);
  EXPECT_EQ(run(run_suspend, {"slow"}), kExitNotFound);
}

TEST_F(Suspend, WaitingEndsWhenTheOperatorHasSeenIt) {
  add_job("quick");
  // The old state does not count, because the operator has not seen the change.
  set_status("quick", {{"phase", "Suspended"}, {"observedGeneration", 1}});
  EXPECT_EQ(run(run_suspend, {"quick", "--wait", "--timeout", "5"}), 1);
  EXPECT_THAT(err_, HasSubstr("after 5 s"));
  EXPECT_GE(clock_.slept, std::chrono::seconds(5));
  clock_.meanwhile = [&] {
    set_status("quick", {{"phase", "Suspended"},
                         {"observedGeneration", 2},
                         {"checkpoint", {{"lastSaved", {{"step", 12}}}}}});
  };
  EXPECT_EQ(run(run_suspend, {"quick", "--wait"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("quick is Suspended, saved at step 12"));
}

TEST_F(Suspend, AFailedJobEndsTheWaitAndAFinishedJobIsNotSuspended) {
  add_job("quick");
  set_status("quick", {{"phase", "Failed"}});
  EXPECT_EQ(run(run_suspend, {"quick"}), 1);
  EXPECT_THAT(err_, HasSubstr("the job is over: Failed"));
  EXPECT_FALSE(job()["spec"].contains("suspend"));
}

TEST_F(Suspend, ForbiddenHasItsOwnExitCode) {
  add_job("quick");
  server_->set_fault([](const kube::Request& request) {
    using Fault = kube::testing::Fault;
    return request.method == "PATCH" ? Fault{.kind = Fault::Kind::Refuse, .status = 403} : Fault{};
  });
  EXPECT_EQ(run(run_suspend, {"quick"}), kExitForbidden);
}

}  // namespace
}  // namespace dsj::cli

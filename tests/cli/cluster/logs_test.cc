#include "tests/cli/cluster/world.h"

namespace dsj::cli {
namespace {

using ::testing::HasSubstr;

class Logs : public testing::World {
 protected:
  void SetUp() override {
    add_job("quick");
    set_status("quick", {{"phase", "Running"}});
    add_pod("quick", 0, 1, "Failed", {"[rank 0] old", "[rank 1] old"});
    add_pod("quick", 0, 2, "Running",
            {"12:00 info [worker 0] attempt 2 starts", "[rank 0] a", "[rank 1] b", "[rank 0] c"});
    add_pod("quick", 1, 1, "Running", {"[rank 2] x", "[rank 3] y", "[rank 30] z"});
    add_pod("quick", 1, 2, "Pending", {});
  }
};

TEST_F(Logs, WithoutARankPrintsAllLinesOfWorkerZero) {
  ASSERT_EQ(run(run_logs, {"quick"}), 0) << err_;
  EXPECT_EQ(out_, "12:00 info [worker 0] attempt 2 starts\n[rank 0] a\n[rank 1] b\n[rank 0] c\n");
}

TEST_F(Logs, WithARankPrintsOnlyItsLines) {
  ASSERT_EQ(run(run_logs, {"quick", "--rank", "0"}), 0);
  EXPECT_EQ(out_, "a\nc\n");
  ASSERT_EQ(run(run_logs, {"quick", "--rank", "0", "--tail", "1"}), 0);
  EXPECT_EQ(out_, "c\n");
  ASSERT_EQ(run(run_logs, {"quick", "--rank=0", "--previous"}), 0);
  EXPECT_EQ(out_, "old\n");
  ASSERT_EQ(run(run_logs, {"quick", "--rank=3", "--previous"}), 0);
  EXPECT_EQ(out_, "y\n") << "rank 30's is not rank 3's";
}

TEST_F(Logs, APodThatHasNotStartedIsReported) {
  EXPECT_EQ(run(run_logs, {"quick", "--worker", "1"}), 1);
  EXPECT_THAT(err_, HasSubstr("ContainerCreating"));
  EXPECT_THAT(err_, HasSubstr("describe quick"));
}

TEST_F(Logs, ARankThatTheJobDoesNotHaveIsRefused) {
  EXPECT_EQ(run(run_logs, {"quick", "--rank", "4"}), 2);
  EXPECT_THAT(err_, HasSubstr("ranks are 0 to 3"));
  EXPECT_EQ(run(run_logs, {"nothing"}), kExitNotFound);
}

TEST_F(Logs, WithoutPodsItSaysWhereTheLogsAre) {
  add_job("gone");
  set_status("gone", {{"phase", "Suspended"}});
  EXPECT_EQ(run(run_logs, {"gone"}), 1);
  EXPECT_THAT(err_, HasSubstr("Suspended"));
  EXPECT_THAT(err_, HasSubstr("/o/logs"));
}

TEST_F(Logs, FollowingWaitsForTheNextPodToStart) {
  add_job("moved");
  set_status("moved", {{"phase", "Restarting"}});
  add_pod("moved", 0, 1, "Failed", {"[rank 0] one"});
  clock_.meanwhile = [&] {
    add_pod("moved", 0, 2, "Pending", {});
    clock_.meanwhile = [&] { set_status("moved", {{"phase", "Complete"}}); };
  };
  ASSERT_EQ(run(run_logs, {"moved", "-f"}), 0) << err_;
  EXPECT_EQ(out_, "[rank 0] one\n");
  EXPECT_EQ(err_, "");
}

TEST_F(Logs, FollowingResumesALogWhoseConnectionHasEnded) {
  const auto more = [&] {
    server_->set_log("team", "quick-worker-0-2", {"[rank 0] a", "[rank 1] b", "[rank 0] c", "d"});
    clock_.meanwhile = [&] { set_status("quick", {{"phase", "Complete"}}); };
  };
  server_->set_log("team", "quick-worker-0-2", {"[rank 0] a", "[rank 1] b"});
  clock_.meanwhile = more;
  ASSERT_EQ(run(run_logs, {"quick", "-f"}), 0) << err_;
  EXPECT_EQ(out_, "[rank 0] a\n[rank 1] b\n[rank 0] c\nd\n") << "each line once";
  EXPECT_EQ(err_, "");
  set_status("quick", {{"phase", "Running"}});
  server_->set_log("team", "quick-worker-0-2", {"[rank 0] a", "[rank 1] b"});
  clock_.meanwhile = more;
  ASSERT_EQ(run(run_logs, {"quick", "-f", "--rank=0", "--timestamps"}), 0) << err_;
  EXPECT_EQ(out_, "2026-01-01T00:00:00Z [rank 0] a\n2026-01-01T00:00:02Z [rank 0] c\n");
}

TEST_F(Logs, FollowingSurvivesAnUnavailableApiServer) {
  clock_.meanwhile = [&] {
    set_status("quick", {{"phase", "Complete"}});
    go_away(20);
  };
  ASSERT_EQ(run(run_logs, {"quick", "-f"}), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("retrying for 5 minutes"));
  set_status("quick", {{"phase", "Running"}});
  clock_.meanwhile = [&] { go_away(1'000'000); };
  EXPECT_EQ(run(run_logs, {"quick", "-f"}), kExitUnreachable);
}

TEST_F(Logs, FollowingContinuesInTheNextPod) {
  add_job("moved");
  set_status("moved", {{"phase", "Restarting"}});
  add_pod("moved", 0, 1, "Failed", {"[rank 0] one"});
  clock_.meanwhile = [&] {
    add_pod("moved", 0, 2, "Failed", {"[rank 0] two"});
    set_status("moved", {{"phase", "Complete"}});
  };
  ASSERT_EQ(run(run_logs, {"moved", "-f"}), 0) << err_;
  EXPECT_EQ(out_, "[rank 0] one\n[rank 0] two\n");
  EXPECT_THAT(err_, HasSubstr("continues as moved-worker-0-2"));
}

}  // namespace
}  // namespace dsj::cli

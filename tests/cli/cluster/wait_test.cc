#include "tests/cli/cluster/world.h"

namespace dsj::cli {
namespace {

using ::testing::HasSubstr;

class WaitVerb : public testing::World {};

TEST_F(WaitVerb, EndsWithTheJob) {
  add_job("quick");
  set_status("quick",
             {{"phase", "Running"}, {"observedGeneration", 1}, {"training", {{"step", 3}}}});
  clock_.meanwhile = [&] { set_status("quick", {{"phase", "Complete"}}); };
  EXPECT_EQ(run(run_wait, {"quick"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("quick: Running, step 3"));
  EXPECT_THAT(out_, HasSubstr("quick is Complete"));
}

TEST_F(WaitVerb, AStepAndACheckpointAreGoals) {
  add_job("quick");
  set_status("quick", {{"phase", "Running"},
                       {"observedGeneration", 1},
                       {"training", {{"step", 30}}},
                       {"checkpoint", {{"lastSaved", {{"step", 20}}}}}});
  EXPECT_EQ(run(run_wait, {"quick", "--for", "step=30"}), 0);
  EXPECT_EQ(run(run_wait, {"quick", "--for", "checkpoint=20"}), 0);
  EXPECT_EQ(run(run_wait, {"quick", "--for", "checkpoint=21", "--timeout", "5"}), 1);
  EXPECT_THAT(err_, HasSubstr("still Running after 5 s"));
  EXPECT_EQ(run(run_wait, {"quick", "--for", "step=soon"}), 2);
  EXPECT_THAT(err_, HasSubstr("expected complete, running, suspended, step=N or checkpoint=N"));
}

TEST_F(WaitVerb, AConditionThatCanNoLongerHoldEndsTheWait) {
  add_job("quick");
  set_status("quick", {{"phase", "Failed"}, {"observedGeneration", 1}});
  EXPECT_EQ(run(run_wait, {"quick"}), 1);
  EXPECT_THAT(err_, HasSubstr("the job is Failed"));
  set_status("quick", {{"phase", "Complete"}});
  EXPECT_EQ(run(run_wait, {"quick", "--for", "suspended"}), 1);
  EXPECT_EQ(run(run_wait, {"none"}), kExitNotFound);
}

TEST_F(WaitVerb, SurvivesAnUnavailableApiServer) {
  add_job("quick");
  set_status("quick", {{"phase", "Running"}, {"observedGeneration", 1}});
  clock_.meanwhile = [&] {
    set_status("quick", {{"phase", "Complete"}});
    go_away(20);
  };
  EXPECT_EQ(run(run_wait, {"quick"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("quick is Complete"));
  EXPECT_THAT(err_, HasSubstr("dsj wait: "));
  EXPECT_THAT(err_, HasSubstr("retrying for 5 minutes"));
  EXPECT_EQ(err_.find("retrying"), err_.rfind("retrying")) << "printed once";
  set_status("quick", {{"phase", "Running"}});
  clock_.meanwhile = [&] { go_away(1'000'000); };
  const auto begin = clock_.now;
  EXPECT_EQ(run(run_wait, {"quick"}), kExitUnreachable);
  EXPECT_GE(clock_.now - begin, std::chrono::minutes(5));
  go_away(0);
  clock_.meanwhile = [&] { go_away(1'000'000); };
  EXPECT_EQ(run(run_wait, {"quick", "--timeout", "30"}), 1);
  EXPECT_THAT(err_, HasSubstr("still Running after 30 s"));
}

TEST_F(WaitVerb, AStateFromBeforeAnEditDoesNotCount) {
  add_job("quick");
  set_status("quick", {{"phase", "Complete"}, {"observedGeneration", 0}});
  EXPECT_EQ(run(run_wait, {"quick", "--timeout", "3"}), 1);
}

/// ttlSecondsAfterFinished: 0: the job is Complete for less than a second.
TEST_F(WaitVerb, AJobThatIsDeletedAtItsEndHasEnded) {
  for (const char* state : {"Complete", "Failed", "Running"}) {
    add_job("quick");
    set_status("quick", {{"phase", "Running"}, {"observedGeneration", 1}});
    clock_.meanwhile = [&] {
      set_status("quick", {{"phase", state}});
      ASSERT_TRUE(client_.remove(jobs_resource(), "team", "quick"));
      if (state == std::string("Failed")) add_job("quick");
    };
    const bool complete = state == std::string("Complete");
    EXPECT_EQ(run(run_wait, {"quick"}), complete ? 0 : 1) << state << err_;
    EXPECT_THAT(complete ? out_ : err_,
                HasSubstr(complete                         ? "quick is Complete"
                          : state == std::string("Failed") ? "the job is Failed"
                                                           : "it was deleted when it was Running"));
    (void)client_.remove(jobs_resource(), "team", "quick");
  }
}

TEST_F(WaitVerb, AnotherJobWithTheNameEndsTheWait) {
  add_job("quick");
  clock_.meanwhile = [&] {
    ASSERT_TRUE(client_.remove(jobs_resource(), "team", "quick"));
    add_job("quick");
  };
  EXPECT_EQ(run(run_wait, {"quick"}), 1);
  EXPECT_THAT(err_, HasSubstr("another job has this name"));
}

}  // namespace
}  // namespace dsj::cli

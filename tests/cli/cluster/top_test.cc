#include "tests/cli/cluster/world.h"

namespace dsj::cli {
namespace {

using ::testing::HasSubstr;

class Top : public testing::World {};

TEST_F(Top, ShowsTheRunningJobsFastestFirst) {
  for (const char* name : {"slow", "quick", "rests"}) add_job(name);
  const auto training = [](int step, const char* speed) {
    return Json{{"step", step},  {"totalSteps", 50},         {"worldSize", 4},
                {"loss", "1.5"}, {"tokensPerSecond", speed}, {"estimatedRemainingSeconds", 60}};
  };
  set_status("slow", {{"phase", "Running"}, {"training", training(5, "100")}});
  set_status("quick", {{"phase", "Running"}, {"training", training(7, "4000")}});
  set_status("rests", {{"phase", "Suspended"}});
  ASSERT_EQ(run(run_top, {}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("NAME    RANKS   STEP   LOSS   TOK/S   TOK/S/RANK   ETA   REPORTED\n"
                              "quick   4       7/50   1.5    4000    1000         60s   -\n"
                              "slow    4       5/50   1.5    100     25           60s   -\n"));
  EXPECT_EQ(out_.find("rests"), std::string::npos);
  ASSERT_EQ(run(run_top, {"-o", "json"}), 0) << err_;
  const Json jobs = Json::parse(out_)["jobs"];
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0]["name"], "quick");
  EXPECT_EQ(jobs[0]["step"], 7);
  EXPECT_EQ(jobs[0]["tokensPerSecond"], "4000") << "as in its status";
  ASSERT_EQ(run(run_top, {"rests"}), 0) << "a job that is named is shown in any state";
  EXPECT_THAT(out_, HasSubstr("rests"));
  EXPECT_EQ(run(run_top, {"none"}), kExitNotFound);
  EXPECT_EQ(run(run_top, {"quick", "-A"}), 2);
}

TEST_F(Top, SaysThatNothingRuns) {
  ASSERT_EQ(run(run_top, {"-o", "json"}), 0);
  EXPECT_EQ(Json::parse(out_), Json({{"jobs", Json::array()}}));
  EXPECT_EQ(run(run_top, {}), 0);
  EXPECT_THAT(err_, HasSubstr("no job runs in namespace team"));
}

}  // namespace
}  // namespace dsj::cli

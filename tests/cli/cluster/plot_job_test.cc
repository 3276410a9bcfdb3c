#include <filesystem>

#include "tests/cli/cluster/world.h"

namespace dsj::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PlotJob : public testing::World {};

TEST_F(PlotJob, DrawsTheLoggedStepsOfAllPodsOfWorkerZero) {
  add_job("quick");
  set_status("quick", {{"phase", "Running"}, {"training", {{"totalSteps", 50}}}});
  add_pod("quick", 0, 1, "Failed",
          {"t info [worker 0] step 10/50 loss 4.0000 lr 1e-05 grad_norm 0.5 300 tok/s",
           "t info [worker 0] step 20/50 loss 9.0000 lr 1e-05 grad_norm 0.5 300 tok/s",
           "[rank 0] step 30/50 loss 7.0000 lr 1e-05"});
  add_pod("quick", 0, 2, "Running",
          {"t info [worker 0] step 20/50 loss 2.0000 lr 1e-05 grad_norm 0.5 300 tok/s"});
  add_pod("quick", 1, 1, "Running", {"t info [worker 1] step 40/50 loss 1.0000 lr 1e-05"});
  const std::string page =
      (std::filesystem::temp_directory_path() / ("plot-" + std::to_string(getpid()) + ".html"));
  ASSERT_EQ(run(run_plot_jobs, {"quick", "--ascii", "--page", page}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("quick: step 20 of 50, Running"));
  EXPECT_THAT(out_, HasSubstr("/o/metrics.jsonl"));
  EXPECT_THAT(out_, HasSubstr("loss"));
  EXPECT_THAT(out_, HasSubstr("tokens_per_second"));
  EXPECT_THAT(out_, Not(HasSubstr("9.0"))) << "the later attempt's step 20 counts";
  EXPECT_GT(std::filesystem::file_size(page), 1000u);
  std::filesystem::remove(page);
  ASSERT_EQ(run(run_plot_jobs, {"quick", "-o", "json"}), 0) << err_;
  const Json drawn = Json::parse(out_);
  EXPECT_TRUE(drawn["page"].is_null());
  EXPECT_EQ(drawn["runs"][0]["curves"]["loss"]["points"],
            Json::parse("[[10.0, 4.0], [20.0, 2.0]]"));
  EXPECT_EQ(run(run_plot_jobs, {"quick", "-o", "json", "--watch"}), 2);
}

TEST_F(PlotJob, WithoutLoggedStepsItSaysWhereTheyAre) {
  add_job("quick");
  add_pod("quick", 0, 1, "Running", {"nothing"});
  EXPECT_EQ(run(run_plot_any, {"quick"}), 1);
  EXPECT_THAT(err_, HasSubstr("loggingSteps"));
  EXPECT_THAT(err_, HasSubstr("/o/metrics.jsonl"));
}

TEST_F(PlotJob, WatchingSurvivesAnUnavailableApiServer) {
  add_job("quick");
  set_status("quick", {{"phase", "Running"}});
  add_pod("quick", 0, 1, "Running", {"t info [worker 0] step 10/50 loss 4.0000 lr 1e-05"});
  clock_.meanwhile = [&] {
    set_status("quick", {{"phase", "Complete"}});
    go_away(20);
  };
  ASSERT_EQ(run(run_plot_jobs, {"quick", "--watch"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("Complete"));
  EXPECT_THAT(err_, HasSubstr("retrying for 5 minutes"));
}

TEST_F(PlotJob, ADirectoryIsPlottedAsARun) {
  EXPECT_EQ(run(run_plot_any, {"/nowhere/at/all"}), 2);
  EXPECT_THAT(err_, HasSubstr("metrics.jsonl"));
  EXPECT_EQ(run(run_plot_any, {"quick", "-n", "team"}), kExitNotFound);
}

}  // namespace
}  // namespace dsj::cli

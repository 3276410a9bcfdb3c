// dsj debug --stacks with fake agents that answer in their logs while the verb waits.
#include "cli/cluster/stacks.h"

#include "job/stacks_request.h"
#include "tests/cli/cluster/world.h"

namespace dsj::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Stacks : public testing::World {
 protected:
  Json annotations() {
    return (*client_.get(jobs_resource(), "team", "quick"))["metadata"].value("annotations",
                                                                              Json::object());
  }
};

TEST(StacksTold, AreOnlyTheLinesOfTheirRequest) {
  StacksTold told;
  for (const char* line : {"12:00 info [worker 0] stacks #17: rank 0, process 5", "[rank 0] loss",
                           "12:00 info [worker 0] stacks #170: rank 0, process 6",
                           "12:00 info [worker 0] stacks #17:   thread 5 dsj-train"}) {
    told.take(line, 17);
  }
  EXPECT_FALSE(told.whole);
  told.take("12:00 info [worker 0] stacks #17: end", 17);
  EXPECT_TRUE(told.whole);
  EXPECT_THAT(told.lines, ElementsAre("rank 0, process 5", "  thread 5 dsj-train"));
}

TEST_F(Stacks, AreRequestedByAnAnnotationAndReadFromTheLogs) {
  add_job("quick");
  add_pod("quick", 0, 1, "Running", {"starting"});
  add_pod("quick", 1, 1, "Running", {"starting"});
  clock_.meanwhile = [&] {
    const std::string prefix =
        stacks_prefix(std::stoll(std::string(annotations()[kAnnotationStacks])));
    server_->set_log("team", "quick-worker-0-1",
                     {"info " + prefix + "rank 0, process 5",
                      "info " + prefix + "    nanosleep (libc.so.6)", "info " + prefix + "end"});
  };
  ASSERT_EQ(run(run_debug, {"quick", "--stacks"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("==== Stacks of all threads\nworker 0, pod quick-worker-0-1\n"
                              "  rank 0, process 5\n      nanosleep (libc.so.6)\nworker 1"));
  EXPECT_THAT(out_, HasSubstr("worker 1, pod quick-worker-1-1\n  did not answer"));
}

TEST_F(Stacks, AreTakenOnlyOnRequestAndFromRunningWorkers) {
  add_job("quick");
  add_pod("quick", 0, 1, "Pending", {});
  ASSERT_EQ(run(run_debug, {"quick", "--stacks"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("no worker runs"));
  add_pod("quick", 1, 1, "Running", {});
  ASSERT_EQ(run(run_debug, {"quick"}), 0) << err_;
  EXPECT_THAT(out_, Not(HasSubstr("Stacks")));
  EXPECT_TRUE(annotations().empty());
}

}  // namespace
}  // namespace dsj::cli

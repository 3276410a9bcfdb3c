#include "cli/cluster/exec.h"

#include "tests/cli/cluster/world.h"

namespace dsj::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Exec : public testing::World {
 protected:
  Exec() {
    job_ = add_job("quick");
    add_pod("quick", 0, 1, "Running", {});
    add_pod("quick", 1, 1, "Failed", {});
    add_pod("quick", 1, 2, "Running", {});
    (void)run(
        [](Arguments, const Connect& connect) {
          const auto session = connect({});
          pods() = *pods_of(**session, "quick");
          return 0;
        },
        {});
  }
  static std::vector<PodRef>& pods() {
    static std::vector<PodRef> found;
    return found;
  }
  Json job_;
};

TEST_F(Exec, FindsTheNewestPodOfARank) {
  EXPECT_EQ(*exec_pod({.name = "quick"}, job_, pods()), "quick-worker-0-1");
  EXPECT_EQ(*exec_pod({.name = "quick", .rank = 3}, job_, pods()), "quick-worker-1-2");
  EXPECT_EQ(*exec_pod({.name = "quick", .worker = 1}, job_, pods()), "quick-worker-1-2");
  EXPECT_THAT(exec_pod({.name = "quick", .rank = 4}, job_, pods()).error().to_string(),
              HasSubstr("there is no rank 4"));
  pods().pop_back();
  EXPECT_THAT(exec_pod({.name = "quick", .worker = 1}, job_, pods()).error().to_string(),
              HasSubstr("does not run now"));
}

TEST_F(Exec, BuildsKubectlsCommandLine) {
  ExecOptions options{.name = "quick", .command = {"ls", "-l"}};
  options.flags.context = "far";
  EXPECT_THAT(exec_command(options, "team", "quick-worker-0-1", false),
              ElementsAre("kubectl", "exec", "-n", "team", "--context=far", "-i",
                          "quick-worker-0-1", "-c", "worker", "--", "ls", "-l"));
  EXPECT_EQ(exec_command(options, "team", "p", true)[5], "-it");
  EXPECT_EQ(run(run_exec, {"quick"}), 2) << "a command is missing";
}

}  // namespace
}  // namespace dsj::cli

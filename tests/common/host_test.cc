#include "common/host.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "test_paths.h"

namespace dsj {
namespace {

namespace fs = std::filesystem;

class HostTest : public testing::Test {
 protected:
  HostTest() {
    std::string name = (fs::temp_directory_path() / "dsj-host-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
  }
  ~HostTest() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::string root() const { return root_.string(); }

 private:
  fs::path root_;
};

TEST_F(HostTest, WithoutGroupsNothingIsLimited) {
  EXPECT_EQ(container_memory(root()), std::nullopt);
  EXPECT_EQ(container_cores(root()), std::nullopt);
  EXPECT_EQ(usable_cores(root()), scheduled_cores());
}

TEST_F(HostTest, TheTightestGroupOnTheWayUpCounts) {
  write("proc/self/cgroup", "0::/pods/one\n");
  write("sys/fs/cgroup/pods/one/cpu.max", "max 100000\n");
  EXPECT_EQ(container_cores(root()), std::nullopt);
  write("sys/fs/cgroup/pods/cpu.max", "800000 100000\n");
  EXPECT_EQ(container_cores(root()), 8);
  write("sys/fs/cgroup/cpu.max", "250000 100000\n");  // a container sees its own group as the root
  EXPECT_EQ(container_cores(root()), 2);
  write("sys/fs/cgroup/pods/one/cpu.max", "50000 100000\n");
  EXPECT_EQ(container_cores(root()), 1);
  EXPECT_EQ(usable_cores(root()), 1);
}

TEST_F(HostTest, VersionOneHasAFolderForEachController) {
  write("proc/self/cgroup", "12:cpuset:/other\n4:memory:/docker/1\n3:cpu,cpuacct:/docker/1\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(container_memory(root()), std::nullopt);
  EXPECT_EQ(container_cores(root()), std::nullopt);
  write("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "4000\n");
  write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "300000\n");
  write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(container_memory(root()), 4000);
  EXPECT_EQ(container_cores(root()), 3);
}

TEST_F(HostTest, ScriptsThatBuildAndTestSeeTheSame) {
  write("proc/meminfo", "MemTotal: 64000000 kB\nMemAvailable: 63000000 kB\n");
  write("proc/self/cgroup", "0::/pods/one\n");
  write("sys/fs/cgroup/pods/one/memory.max", "max\n");
  const std::string script = std::string(DSJ_SOURCE_DIR) + "/scripts/jobs.sh ";
  const auto says = [&](const std::string& what) {
    FILE* pipe = ::popen((script + what + " " + root()).c_str(), "r");
    int number = -1;
    const bool read = pipe != nullptr && std::fscanf(pipe, "%d", &number) == 1;
    EXPECT_TRUE(pipe != nullptr && ::pclose(pipe) == 0 && read) << what;
    return number;
  };
  EXPECT_EQ(says("cores"), usable_cores(root()));
  for (const char* quota : {"max 100000", "100000 100000", "6400000 100000", "5000 100000"}) {
    write("sys/fs/cgroup/pods/cpu.max", quota);
    EXPECT_EQ(says("cores"), usable_cores(root())) << quota;
  }
  // A compiler takes a gigabyte: memory for half of one still lets one run.
  write("sys/fs/cgroup/memory.max", "500000000\n");
  EXPECT_EQ(says("compilers"), 1);
  EXPECT_EQ(says("cores"), 1);
}

TEST(ScheduledCores, AreThoseOfTheThread) {
  std::thread([] {
    cpu_set_t first, all;
    ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
    EXPECT_EQ(scheduled_cores(), CPU_COUNT(&all));
    CPU_ZERO(&first);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &all)) continue;
      CPU_SET(cpu, &first);
      break;
    }
    ASSERT_EQ(::sched_setaffinity(0, sizeof first, &first), 0);
    EXPECT_EQ(scheduled_cores(), 1);
  }).join();
}

TEST(Host, OpenFilesAreAllowedUpToTheHardLimit) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int hard = static_cast<int>(std::min<rlim_t>(before.rlim_max, 4000));
  const rlimit low{200, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(allow_open_files(100), 200) << "never lowered";
  EXPECT_EQ(allow_open_files(hard), hard);
  rlimit now{};
  getrlimit(RLIMIT_NOFILE, &now);
  EXPECT_EQ(now.rlim_cur, static_cast<rlim_t>(hard));
  EXPECT_EQ(now.rlim_max, before.rlim_max);
  if (before.rlim_max < 1'000'000'000) {
    EXPECT_EQ(allow_open_files(1'000'000'001), static_cast<int>(before.rlim_max));
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace dsj

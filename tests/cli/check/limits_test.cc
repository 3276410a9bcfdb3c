#include "cli/check/limits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;

class LimitsTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("dsj-limits-test-" + std::to_string(getpid()));
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  fs::path root_;
};

struct FakeMachine : Machine {
  std::optional<int64_t> container, all, disk, gpu;
  std::optional<int64_t> container_memory() const override { return container; }
  std::optional<int64_t> memory() const override { return all; }
  std::optional<int64_t> free_disk(const std::string&) const override { return disk; }
  std::string lacking_gpu() const override { return {}; }
  std::optional<int64_t> gpu_memory() const override { return gpu; }
};

TEST_F(LimitsTest, TheContainersLimitIsTheSmallestOfItsGroups) {
  EXPECT_FALSE(ThisMachine(root_.string()).container_memory());
  EXPECT_FALSE(ThisMachine(root_.string()).memory());
  write("proc/self/cgroup", "12:cpu:/old\n0::/pods/one\n");
  write("sys/fs/cgroup/pods/one/memory.max", "max\n");
  EXPECT_FALSE(ThisMachine(root_.string()).container_memory());
  write("sys/fs/cgroup/pods/memory.max", "5000\n");
  EXPECT_EQ(ThisMachine(root_.string()).container_memory(), 5000);
  write("sys/fs/cgroup/pods/one/memory.max", "3000\n");
  EXPECT_EQ(ThisMachine(root_.string()).container_memory(), 3000);
  write("sys/fs/cgroup/memory.max", "100\n");  // a container sees its own group as the root
  EXPECT_EQ(ThisMachine(root_.string()).container_memory(), 100);
  write("proc/meminfo", "MemFree: 5 kB\nMemTotal:       16384 kB\n");
  EXPECT_EQ(ThisMachine(root_.string()).memory(), 16384 * 1024);
}

TEST_F(LimitsTest, FreeDiskIsThatOfTheNearestExistingDirectory) {
  const auto free = ThisMachine().free_disk("/tmp/no/such/directory");
  ASSERT_TRUE(free);
  EXPECT_GT(*free, 0);
}

TEST_F(LimitsTest, SourcesOfLimitsHaveAnOrderOfPrecedence) {
  jobspec::Job job;
  job.training.output_dir = "/out";
  FakeMachine machine;
  EXPECT_FALSE(limits_of(job, {}, {}, machine).host.bytes);
  machine.all = 1000, machine.disk = 70;
  EXPECT_EQ(limits_of(job, {}, {}, machine).host.bytes, 1000);
  EXPECT_EQ(limits_of(job, {}, {}, machine).output_disk.bytes, 70);
  machine.container = 400;
  EXPECT_EQ(limits_of(job, {}, {}, machine).host.from, "this container's memory limit");
  EXPECT_EQ(limits_of(job, {}, {.memory = 90}, machine).host.bytes, 90);
  EXPECT_EQ(limits_of(job, {}, {.device_memory = 30}, machine).device.bytes, 30);
  EXPECT_FALSE(limits_of(job, {}, {}, machine).device.bytes);
  machine.gpu = 50;
  EXPECT_EQ(limits_of(job, {}, {}, machine).device.bytes, 50);
  EXPECT_EQ(limits_of(job, {}, {.device_memory = 30}, machine).device.bytes, 30);
  job.training.device = "cpu";
  EXPECT_FALSE(limits_of(job, {}, {}, machine).device.bytes) << "it trains on the CPU";
  job.training.device = "cuda";
  EXPECT_EQ(limits_of(job, {}, {}, machine).device.bytes, 50);
  dsconfig::Offload offload;
  offload.optimizer = {.device = dsconfig::OffloadDevice::Nvme, .nvme_path = "/a"};
  EXPECT_EQ(limits_of(job, offload, {}, machine).nvme_disk.from, "/a");
  offload.param = {.device = dsconfig::OffloadDevice::Nvme, .nvme_path = "/a"};
  EXPECT_FALSE(limits_of(job, offload, {}, machine).nvme_parameter_disk.bytes) << "one disk";
  offload.param.nvme_path = "/b";
  EXPECT_EQ(limits_of(job, offload, {}, machine).nvme_parameter_disk.from, "/b");
  job.worker_template = nlohmann::json::parse(
      R"({"spec": {"containers": [{"name": "worker", "resources": {"limits": {"memory": "1Ki"}}}]}})");
  EXPECT_EQ(limits_of(job, {}, {}, machine).host.bytes, 1024);
  EXPECT_FALSE(limits_of(job, {}, {}, machine).output_disk.bytes) << "its disk is elsewhere";
  job.worker_template = nlohmann::json::object();
  EXPECT_FALSE(limits_of(job, {}, {}, machine).host.bytes) << "nobody says";
}

}  // namespace
}  // namespace dsj::cli

#include "agent/health/node_probe.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "agent/health/nvml.h"
#include "test_paths.h"

namespace dsj::agent {
namespace {

namespace fs = std::filesystem;

struct NodeProbeTest : testing::Test {
  fs::path root = fs::path(testing::TempDir()) / ("probe-" + std::to_string(getpid()));
  void SetUp() override {
    fs::remove_all(root);
    for (const char* folder :
         {"proc", "dev/shm", "run", "out/checkpoints/step-1", "out/checkpoints/step-2"})
      fs::create_directories(root / folder);
  }
  void TearDown() override { fs::remove_all(root); }
  ProbePlaces places() const {
    return {.root = root,
            .scratch = root / "run",
            .output = root / "out",
            .checkpoints = root / "out/checkpoints",
            .nvml = "/no/such/library.so"};
  }
};

TEST_F(NodeProbeTest, ReadsThisMachine) {
  std::ofstream(root / "proc/meminfo") << "MemTotal:  99 kB\nMemAvailable:     2048 kB\n";
  std::ofstream(root / "out/checkpoints/step-1/a") << std::string(5000, 'x');
  std::ofstream(root / "out/checkpoints/step-2/a") << std::string(3000, 'x');
  fs::last_write_time(root / "out/checkpoints/step-1",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  fs::last_write_time(root / "out/checkpoints/step-2", fs::file_time_type::clock::now());
  const NodeFacts facts = PosixNodeProbe(places(), {}).look();
  EXPECT_EQ(facts.memory_available, 2048 * 1024);
  EXPECT_EQ(facts.newest_checkpoint, 3000);
  ASSERT_TRUE(facts.output_free && facts.scratch_free && facts.shm_bytes);
  EXPECT_GT(*facts.output_free, 0);
  EXPECT_GE(*facts.shm_bytes, *facts.scratch_free)
      << "one file system here: its size, and what is free";
  EXPECT_FALSE(facts.clock_ahead);
  EXPECT_FALSE(facts.driver);
}

TEST_F(NodeProbeTest, WhatIsNotThereIsUnset) {
  fs::remove_all(root);
  const NodeFacts facts = PosixNodeProbe(places(), {}).look();
  EXPECT_FALSE(facts.memory_available || facts.scratch_free || facts.output_free ||
               facts.newest_checkpoint || facts.shm_bytes);
}

TEST(ClockHints, ATokenProvesOnlyThatAClockIsBehind) {
  EXPECT_EQ(clock_ahead({}, 1000), std::nullopt);
  EXPECT_EQ(clock_ahead({.not_before = 900}, 1000), std::nullopt);
  EXPECT_EQ(clock_ahead({.not_before = 1090}, 1000), -90);
  EXPECT_EQ(clock_ahead({.server_time = 940, .not_before = 1090}, 1000), 60);
}

TEST(ClockHints, HttpDatesAreRead) {
  EXPECT_EQ(time_from_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), 784111777);
  for (const char* text : {"", "1994-11-06", "Sun, 06 Nov 1994 08:49:37 GMT+1", "Sun, 06 Nov 1994"})
    EXPECT_FALSE(time_from_http_date(text)) << text;
}

/// fake_nvml.cc: a library with NVML's functions, which does what a variable says.
struct NvmlTest : testing::Test {
  static std::optional<DriverFacts> read(Nvml& nvml, const std::string& does) {
    setenv("FAKE_NVML", does.c_str(), 1);
    return nvml.read();
  }
  static std::optional<DriverFacts> read(const std::string& does) {
    Nvml nvml(kLibrary);
    return read(nvml, does);
  }
  static constexpr char kLibrary[] = DSJ_BIN_DIR "/../fake_nvml/libnvidia-ml.so.1";
};

TEST_F(NvmlTest, HealthyGpus) {
  const auto facts = read("gpus=2");
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->version, "570.00");
  EXPECT_EQ(facts->problem, "");
  ASSERT_EQ(facts->gpus.size(), 2u);
  const GpuFacts healthy{.index = 1,
                         .uncorrected = 0,
                         .remap_failed = false,
                         .remap_pending = false,
                         .links_up = 4,
                         .links_down = 0,
                         .link_recoveries = 0,
                         .recovery = GpuRecovery::None};
  EXPECT_EQ(facts->gpus[1], healthy);
}

TEST_F(NvmlTest, WhatIsBrokenIsTold) {
  EXPECT_EQ(read("init=18")->problem, "error 18 of the fake");
  EXPECT_TRUE(read("gpus=2 lost=1")->gpus.at(1).lost);
  const auto facts = read("gpus=1 ecc=3 pending failed down=1 recovery=2");
  EXPECT_EQ(facts->gpus.at(0).recovery, GpuRecovery::Reboot);
  EXPECT_EQ(facts->gpus.at(0).uncorrected, 3);
  EXPECT_EQ(facts->gpus.at(0).remap_pending, true);
  EXPECT_EQ(facts->gpus.at(0).remap_failed, true);
  EXPECT_EQ(facts->gpus.at(0).links_up, 3);
  EXPECT_EQ(facts->gpus.at(0).links_down, 1);
}

/// An XID that was told before nobody listened for; what it left behind is in the other facts.
TEST_F(NvmlTest, XidsAreHeardFromTheFirstLookOn) {
  Nvml nvml(kLibrary);
  EXPECT_TRUE(read(nvml, "gpus=2 xid=31")->gpus.at(1).xids.empty());
  EXPECT_THAT(read(nvml, "gpus=2 xid=79")->gpus.at(1).xids, testing::ElementsAre(79));
  const auto facts = read(nvml, "gpus=2 xid=13");
  EXPECT_THAT(facts->gpus.at(1).xids, testing::ElementsAre(13, 79)) << "none is forgotten";
  EXPECT_TRUE(facts->gpus.at(0).xids.empty());
}

TEST_F(NvmlTest, XidsOfALostGpuAreTold) {
  Nvml nvml(kLibrary);
  read(nvml, "gpus=2");
  const auto facts = read(nvml, "gpus=2 xid=79 lost=1");
  EXPECT_TRUE(facts->gpus.at(1).lost);
  EXPECT_THAT(facts->gpus.at(1).xids, testing::ElementsAre(79));
}

TEST_F(NvmlTest, ADriverThatComesBackIsAskedAgain) {
  Nvml nvml(kLibrary);
  EXPECT_NE(read(nvml, "init=9")->problem, "");
  EXPECT_EQ(read(nvml, "gpus=1")->gpus.size(), 1u);
  EXPECT_THAT(read(nvml, "gpus=1 xid=48")->gpus.at(0).xids, testing::ElementsAre(48));
}

TEST_F(NvmlTest, LinkRecoveriesCountFromTheFirstLook) {
  Nvml nvml(kLibrary);
  EXPECT_EQ(read(nvml, "gpus=1 recoveries=5")->gpus.at(0).link_recoveries, 0);
  EXPECT_EQ(read(nvml, "gpus=1 recoveries=7")->gpus.at(0).link_recoveries, 4 * 2);
  EXPECT_EQ(read(nvml, "gpus=1 recoveries=1")->gpus.at(0).link_recoveries, 4) << "it was reset";
}

TEST_F(NvmlTest, WhatAGpuDoesNotSupportIsUnset) {
  const auto facts = read("gpus=1 old");
  EXPECT_EQ(facts->gpus.at(0), GpuFacts{});
}

}  // namespace
}  // namespace dsj::agent

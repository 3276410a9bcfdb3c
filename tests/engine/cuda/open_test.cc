// What is found on machines without a driver, with one that shows no GPU, and with plugins that
// cannot be used.
#include "engine/cuda/open.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "common/cuda_driver.h"
#include "test_paths.h"

namespace dsj::cuda {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

const std::string kDriver = std::string(DSJ_BIN_DIR) + "/../fake_driver/libcuda.so.1";

class Open : public testing::Test {
 protected:
  void TearDown() override {
    unsetenv("FAKE_GPUS");
    unsetenv("FAKE_CUINIT");
    unsetenv("FAKE_CAPABILITY");
    unsetenv("FAKE_DRIVER");
    unsetenv("FAKE_MEMORY");
  }
  static Found found(const char* gpus, const std::string& plugin) {
    setenv("FAKE_GPUS", gpus, 1);
    return open(kDriver.c_str(), plugin).found;
  }
};

TEST_F(Open, WithoutADriverNothingElseIsLookedFor) {
  const Opened opened = open("libno_such_driver.so.1");
  EXPECT_EQ(opened.found.devices, 0);
  EXPECT_EQ(opened.found.lacking, "no CUDA driver (libno_such_driver.so.1) is here");
  EXPECT_EQ(opened.plugin, nullptr);
}

TEST_F(Open, ADriverMayShowNoGpu) {
  EXPECT_EQ(found("0", "").lacking, "the CUDA driver shows no GPU");
  setenv("FAKE_CUINIT", "999", 1);
  const Found broken = found("2", "");
  EXPECT_EQ(broken.devices, 0);
  EXPECT_EQ(broken.lacking, "the CUDA driver shows no GPU (cuInit returns 999)");
}

TEST_F(Open, AsksTheDriverWhatItsGpusCanDo) {
  EXPECT_THAT(found("2", "").capabilities, testing::ElementsAre(90, 90));
  setenv("FAKE_CAPABILITY", "121", 1);
  EXPECT_THAT(found("1", "").capabilities, testing::ElementsAre(121));
  EXPECT_THAT(found("0", "").capabilities, testing::IsEmpty());
}

/// What a job must fit into, whichever GPU its rank gets.
TEST_F(Open, TheLeastMemoryOfItsGpusCounts) {
  setenv("FAKE_GPUS", "3", 1);
  EXPECT_EQ(cuda_driver(kDriver.c_str()).memory, 0) << "the driver does not say";
  setenv("FAKE_MEMORY", "81559", 1);
  EXPECT_EQ(cuda_driver(kDriver.c_str()).memory, int64_t{81557} << 20);
  setenv("FAKE_GPUS", "0", 1);
  EXPECT_EQ(cuda_driver(kDriver.c_str()).memory, 0);
}

TEST_F(Open, ADriverOlderThanOurCudaIsNamed) {
  setenv("FAKE_DRIVER", "12080", 1);
  const Found old = found("1", kDriver);
  EXPECT_TRUE(old.plugin_there);
  EXPECT_EQ(old.plugin_problem,
            "the driver is made for CUDA 12.8, and libdsj_cuda.so needs one for CUDA 13.0 or later "
            "(580 or later)");
  const Found without = found("1", "/nowhere/libdsj_cuda.so");
  EXPECT_THAT(without.plugin_problem, HasSubstr("this build has no GPU half"));
  EXPECT_FALSE(without.plugin_there) << "a build for the CPU is as good as before";
}

TEST_F(Open, SaysWhyAPluginCannotBeUsed) {
  const Found missing = found("2", "/nowhere/libdsj_cuda.so");
  EXPECT_EQ(missing.devices, 2);
  EXPECT_FALSE(missing.plugin_there);
  EXPECT_EQ(missing.plugin_problem,
            "/nowhere/libdsj_cuda.so is not there: this build has no GPU half");

  const std::string damaged = testing::TempDir() + "/dsj-damaged-plugin.so";
  std::ofstream(damaged) << "not a library";
  const Found wrong = found("2", damaged);
  EXPECT_TRUE(wrong.plugin_there);
  EXPECT_THAT(wrong.plugin_problem, HasSubstr("libdsj_cuda.so cannot be loaded: "));

  const Found other = found("2", kDriver);
  EXPECT_TRUE(other.plugin_there);
  EXPECT_THAT(other.plugin_problem, EndsWith("comes from another build"));
}

}  // namespace
}  // namespace dsj::cuda

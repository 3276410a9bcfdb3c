#include "engine/weights/weight_source.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/files/posix_files.h"

namespace dsj::weights {
namespace {

std::filesystem::path golden_dir() {
  const char* shared = std::getenv("DSJ_SHARED_DIR");
  return std::filesystem::path(shared ? shared : DSJ_SOURCE_DIR "/../shared") / "golden";
}

TEST(WeightSource, RealModelDirectories) {
  const auto models = golden_dir() / "models";
  if (!std::filesystem::exists(models)) GTEST_SKIP() << models << " is not there";
  PosixFiles files;
  for (const char* name : {"tiny-qwen2", "tiny-llama", "tiny-gpt2"}) {
    auto source = WeightSource::open(files, models / name);
    ASSERT_TRUE(source) << source.error().to_string();
    EXPECT_EQ(source->dtype(), DType::F32);
    int64_t bytes = 0;
    for (const TensorInfo& tensor : source->tensors()) {
      bytes += tensor.bytes();
      std::vector<float> whole(size_t(tensor.elements), NAN), half(whole.size() / 2, NAN);
      ASSERT_TRUE(source->read(tensor.name, 0, whole));
      ASSERT_TRUE(source->read(tensor.name, tensor.elements - int64_t(half.size()), half));
      EXPECT_TRUE(std::equal(half.rbegin(), half.rend(), whole.rbegin())) << tensor.name;
    }
    EXPECT_GT(bytes, 500'000);
    EXPECT_FALSE(source->read("no.such.tensor", 0, {}));
  }
}

}  // namespace
}  // namespace dsj::weights

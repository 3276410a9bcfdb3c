// Property: whatever is written into a job's objects, a pass decides, writes a small status, and comes to rest.
#include "tests/operator/drawn_job.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

namespace dsj::op::testing {
namespace {

std::vector<uint8_t> bytes_of(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> bytes(64 + random() % 1024);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

/// Passes over jobs of many seeds. More: DSJ_DRAWN_PASSES=N, and from another seed on: DSJ_DRAWN_SEED=N.
TEST(DrawnJob, KeepsEveryPromise) {
  const char* most = std::getenv("DSJ_DRAWN_PASSES");
  const char* first = std::getenv("DSJ_DRAWN_SEED");
  const int64_t passes = most ? std::atoll(most) : 10'000;
  int64_t done = 0;
  uint64_t seed = first ? std::strtoull(first, nullptr, 10) : 0;
  const uint64_t begin = seed;
  std::map<std::string, std::string> broken;  // by the beginning of what it says
  for (; done < passes && broken.size() < 10; ++seed) {
    const auto bytes = bytes_of(seed);
    Draw draw(bytes.data(), bytes.size());
    try {
      DrawnJob job(draw);
      job.live(60);
      done += job.passes;
    } catch (const std::exception& error) {
      const std::string what = error.what();
      broken.try_emplace(what.substr(0, 50), "seed " + std::to_string(seed) + ": " + what);
      done += 10;
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  for (const auto& [kind, what] : broken) ADD_FAILURE() << what.substr(0, 3000);
  std::printf("drawn jobs: %lld passes over %llu jobs\n", static_cast<long long>(done),
              static_cast<unsigned long long>(seed - begin));
}

}  // namespace
}  // namespace dsj::op::testing

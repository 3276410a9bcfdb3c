// The simulation must find what is planted: each bug within some hundred seeds. DSJ_BUG=WORDS: only bugs with these words in
// their names.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/operator/sim/simulation.h"

namespace dsj::op::sim {
namespace {

constexpr uint64_t kSeedsMax = 1200;

TEST(PlantedBugs, EachIsCaught) {
  spdlog::set_level(spdlog::level::off);
  struct Found {
    std::string problem;
    uint64_t seed = 0;
  };
  const char* only = std::getenv("DSJ_BUG");
  std::vector<Bug> bugs = planted_bugs();
  if (only) std::erase_if(bugs, [&](const Bug& bug) { return !bug.name.contains(only); });
  std::vector<Found> all(bugs.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i = next++; i < all.size(); i = next++) {
      const Bug& bug = bugs[i];
      for (uint64_t n = 0; n < kSeedsMax && all[i].problem.empty(); ++n) {
        const uint64_t seed =
            bug.scenario < 0 ? n : n * kScenarios + static_cast<uint64_t>(bug.scenario);
        const Outcome outcome = simulate(seed, &bug);
        if (!outcome.problems.empty()) all[i] = {outcome.problems[0], seed};
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back(work);
  }
  for (auto& thread : threads) thread.join();
  size_t caught = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const Bug& bug = bugs[i];
    const auto& [found, seed] = all[i];
    caught += !found.empty();
    EXPECT_FALSE(found.empty()) << "not caught in " << kSeedsMax << " seeds: " << bug.name;
    std::printf("%-55s seed %3llu: %.90s\n", bug.name.c_str(),
                static_cast<unsigned long long>(seed), found.c_str());
  }
  std::printf("%zu of %zu planted bugs caught\n", caught, bugs.size());
  EXPECT_GE(planted_bugs().size(), 40u);
}

}  // namespace
}  // namespace dsj::op::sim

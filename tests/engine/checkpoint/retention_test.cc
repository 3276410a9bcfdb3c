#include "engine/checkpoint/retention.h"

#include <gtest/gtest.h>

#include <random>

#include "common/files/memory_files.h"
#include "tests/engine/checkpoint/support.h"

namespace dsj::checkpoint {
namespace {

/// transformers' rotate_checkpoints over drawn runs: at most max(limit, 2) are left where the newest is
/// not the best, and these two are among them; the others are the newest.
TEST(Retention, TheBestIsNeverRotatedAway) {
  std::mt19937 random(9);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  const ModelWorld model = ModelWorld::make(10);
  for (int run = 0; run < 60; ++run) {
    MemoryFiles files;
    ASSERT_TRUE(files.make_dirs(kDir));
    const int64_t limit = draw(0, 4), saves = draw(1, 8);
    std::optional<int64_t> best;
    std::vector<int64_t> want;
    for (int64_t step = 1; step <= saves; ++step) {
      if (draw(0, 2) == 0) best = step;
      WriteOptions options{.checkpoints_dir = kDir, .step = step};
      ASSERT_TRUE(model.write(files, options));
      Publication publication = model.publication(step, limit);
      publication.best_step = best;
      ASSERT_TRUE(publish(files, options, publication));
      want.push_back(step);
      for (auto one = want.begin(); limit > 0 && one != want.end();) {
        const int64_t keep = std::max<int64_t>(limit, best && *best != step ? 2 : 1);
        if (static_cast<int64_t>(want.size()) <= keep) break;
        one = *one == step || best == *one ? one + 1 : want.erase(one);
      }
    }
    std::vector<int64_t> left;
    const auto candidates = list_candidates(files, kDir);
    for (const auto& candidate : *candidates) left.push_back(candidate.step);
    std::ranges::sort(left);
    EXPECT_EQ(left, want) << "limit " << limit << ", best " << best.value_or(0);
  }
}

}  // namespace
}  // namespace dsj::checkpoint

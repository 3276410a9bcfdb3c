// The last checkpoint that a finite step followed is never rotated away.
#include "engine/checkpoint/confirmed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "common/files/memory_files.h"
#include "engine/checkpoint/retention.h"
#include "tests/engine/checkpoint/support.h"

namespace dsj::checkpoint {
namespace {

std::vector<int64_t> steps_left(MemoryFiles& files) {
  std::vector<int64_t> steps;
  const auto candidates = list_candidates(files, kDir);
  for (const auto& candidate : *candidates) steps.push_back(candidate.step);
  std::ranges::sort(steps);
  return steps;
}

TEST(ConfirmedTest, ACheckpointIsConfirmedByAFiniteStepAfterIt) {
  Confirmed confirmed;
  EXPECT_FALSE(confirmed.took(true)) << "nothing is saved";
  confirmed.saved(4);
  EXPECT_EQ(confirmed.step(), std::nullopt);
  EXPECT_FALSE(confirmed.took(false));
  EXPECT_EQ(confirmed.step(), std::nullopt);
  confirmed.saved(6);
  EXPECT_TRUE(confirmed.took(true));
  EXPECT_EQ(confirmed.step(), 6);
  EXPECT_FALSE(confirmed.took(true)) << "known before";
  confirmed.saved(8);
  EXPECT_FALSE(confirmed.took(false));
  EXPECT_EQ(confirmed.step(), 6);
  EXPECT_EQ(confirmed.newest(), 8);
}

/// Drawn runs of several attempts, each step finite or not, saved or not, published at once or two steps
/// later, resumed from what is newest. After every publication and every later pruning: the newest
/// checkpoint that was ever followed by a finite step is there, so is the newest of all, and where all
/// is well no more than the limit.
TEST(ConfirmedTest, TheLastConfirmedOneIsNeverRotatedAway) {
  std::mt19937 random(31);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  const ModelWorld model = ModelWorld::make(10);
  int64_t would_be_lost = 0, at_the_limit = 0;
  for (int run = 0; run < 150; ++run) {
    MemoryFiles files;
    ASSERT_TRUE(files.make_dirs(kDir));
    const int64_t limit = draw(1, 3), attempts = draw(1, 3), badness = draw(0, 9);
    std::optional<int64_t> known_good;  // over all attempts, by what was seen
    int64_t step = 0;
    for (int64_t attempt = 1; attempt <= attempts; ++attempt) {
      Confirmed confirmed;
      std::optional<int64_t> here;  // the checkpoint whose weights the next step uses, or older
      if (const auto left = steps_left(files); !left.empty()) {
        step = left.back();
        here = step;
        confirmed.saved(step);
      }
      const int64_t last = step + draw(1, 8);
      while (step < last) {
        ++step;
        const bool finite = draw(0, 9) >= badness;
        if (finite && here) known_good = std::max(known_good.value_or(0), *here);
        if (confirmed.took(finite)) {
          EXPECT_EQ(prune(files, {.checkpoints_dir = kDir,
                                  .step = *confirmed.newest(),
                                  .attempt = attempt,
                                  .save_total_limit = limit,
                                  .confirmed = confirmed.step()}),
                    std::vector<std::string>());
        }
        if (draw(0, 2) == 0) {
          ASSERT_TRUE(
              model.write(files, {.checkpoints_dir = kDir, .step = step, .attempt = attempt}));
          Publication publication = model.publication(step, limit);
          publication.confirmed = confirmed.step();
          ASSERT_TRUE(publish(files, {.checkpoints_dir = kDir, .step = step, .attempt = attempt},
                              publication));
          confirmed.saved(step);
          here = step;
        }
        const auto left = steps_left(files);
        if (!here) continue;
        ASSERT_FALSE(left.empty());
        EXPECT_EQ(left.back(), *here);
        if (!known_good) continue;
        EXPECT_TRUE(std::ranges::count(left, *known_good) == 1)
            << "step " << *known_good << " was confirmed, limit " << limit;
        const auto newer =
            std::ranges::count_if(left, [&](int64_t one) { return one > *known_good; });
        would_be_lost += newer >= limit;
        if (*known_good == *here) {
          EXPECT_LE(std::ssize(left), limit);
          ++at_the_limit;
        }
      }
    }
  }
  EXPECT_GT(would_be_lost, 100);
  EXPECT_GT(at_the_limit, 100);
}

}  // namespace
}  // namespace dsj::checkpoint

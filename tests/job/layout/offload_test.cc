// The plan of where offloaded elements lie: parts cover every shard once, files do not overlap,
// staging keeps to its bound.
#include "job/layout/offload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace dsj::layout {
namespace {

OffloadInput input(Placement optimizer, Placement parameters = {}) {
  return {.flats = {{100'000, 3, 2}, {32, 3, 2}, {250'016, 3, 0}},
          .optimizer = optimizer,
          .parameters = parameters};
}

int64_t elements(const std::vector<Part>& parts, Place place) {
  int64_t sum = 0;
  for (const Part& part : parts) sum += part.place == place ? part.numel : 0;
  return sum;
}

void expect_cover(const std::vector<Part>& parts, int64_t numel) {
  int64_t at = 0;
  for (const Part& part : parts) {
    EXPECT_EQ(part.begin, at);
    EXPECT_GT(part.numel, 0);
    at += part.numel;
  }
  EXPECT_EQ(at, numel);
}

TEST(OffloadPlan, WithoutOffloadEverythingIsOnTheDevice) {
  const OffloadPlan plan = plan_offload(input({}));
  EXPECT_EQ(plan.optimizer[0], (std::vector<Part>{{Place::Device, 0, 100'000, 0}}));
  EXPECT_TRUE(plan.parameters[2].empty()) << "no parameter shard";
  EXPECT_EQ(plan.staging_bytes() + plan.optimizer_file_bytes + plan.parameter_file_bytes, 0);
}

TEST(OffloadPlan, RatioSharesEveryShard) {
  const OffloadPlan plan = plan_offload(input({.place = Place::Host, .ratio = 0.25}));
  expect_cover(plan.optimizer[0], 100'000);
  EXPECT_NEAR(elements(plan.optimizer[0], Place::Host), 25'000, kAlign);
  EXPECT_EQ(elements(plan.optimizer[1], Place::Host), 32);
}

TEST(OffloadPlan, TilesCoverTheShardAndDoNotOverlapInTheFile) {
  for (const int64_t staging : {1, 50'000, 400'000, 10'000'000}) {
    for (const int64_t at_once : {1, 3}) {
      const OffloadPlan plan =
          plan_offload(input({.place = Place::File, .staging = staging, .tiles_at_once = at_once}));
      std::vector<std::pair<int64_t, int64_t>> extents;
      for (size_t flat = 0; flat < 3; ++flat) {
        expect_cover(plan.optimizer[flat], input({}).flats[flat].shard_numel);
        for (const Part& part : plan.optimizer[flat]) {
          EXPECT_EQ(part.place, Place::File);
          EXPECT_EQ(part.begin % kTileAlign, 0);
          EXPECT_LE(part.numel, plan.tile);
          EXPECT_EQ(part.file_offset % kFileAlign, 0);
          const int64_t bytes = file_bytes(part.numel, 3, 4);
          EXPECT_LE(bytes, plan.optimizer_tile_bytes);
          extents.push_back({part.file_offset, part.file_offset + bytes});
        }
      }
      std::ranges::sort(extents);
      for (size_t i = 1; i < extents.size(); ++i)
        EXPECT_EQ(extents[i].first, extents[i - 1].second);
      EXPECT_EQ(extents.back().second, plan.optimizer_file_bytes);
      // No more in memory than asked, but for the smallest tile there is.
      const int64_t floor = file_bytes(kTileAlign, 3, 4) * at_once;
      EXPECT_LE(plan.staging_bytes(), std::max(4 * staging, floor) + 4 * kFileAlign * at_once);
    }
  }
}

TEST(OffloadPlan, TheFirstElementsStayInHostMemory) {
  const OffloadPlan plan =
      plan_offload(input({}, {.place = Place::File, .host_first = 30'000, .staging = 40'960}));
  expect_cover(plan.parameters[0], 100'000);
  EXPECT_EQ(plan.parameters[0][0], (Part{Place::Host, 0, 30'000 / kTileAlign * kTileAlign, 0}));
  EXPECT_EQ(elements(plan.parameters[1], Place::Host), 32) << "what is left holds the second";
  const OffloadPlan all = plan_offload(input({}, {.place = Place::File, .host_first = 1 << 20}));
  EXPECT_EQ(all.parameter_file_bytes, 0);
  EXPECT_EQ(all.staging_bytes(), 0);
}

TEST(OffloadPlan, BothKindsAreCutAlike) {
  const OffloadPlan plan =
      plan_offload(input({.place = Place::File, .staging = 120'000},
                         {.place = Place::File, .host_first = 5000, .staging = 1'000'000}));
  const auto& a = plan.optimizer[0];
  const auto& b = plan.parameters[0];
  ASSERT_EQ(a.size() + 1, b.size()) << "but for what stays in host memory";
  for (size_t i = 1; i < a.size(); ++i) EXPECT_EQ(a[i].begin, b[i + 1].begin);
}

}  // namespace
}  // namespace dsj::layout

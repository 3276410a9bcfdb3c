#include "engine/data/batches/packs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/engine/data/support.h"

namespace dsj::data {
namespace {

using testing::ElementsAre;

std::vector<RowSize> rows_of_sizes(const std::vector<int32_t>& tokens) {
  std::vector<RowSize> rows;
  for (const int32_t count : tokens) rows.push_back({count, count - 1});
  return rows;
}

std::vector<int64_t> rows_in(const Packs& packs, int64_t pack) {
  std::vector<int64_t> rows;
  for (const RowPart& part : packs.parts(pack)) rows.push_back(part.row);
  return rows;
}

TEST(Packs, PutsTheLongestRowFirstIntoTheFullestPackWithRoom) {
  // 7 opens pack 0 (room 3), 6 opens pack 1 (room 4), 4 fits pack 1 only, 3 fills pack 0, 2 opens 2.
  const auto rows = rows_of_sizes({2, 4, 7, 3, 6});
  const Packs packs(rows, 10);
  ASSERT_EQ(packs.count(), 3);
  EXPECT_THAT(rows_in(packs, 0), ElementsAre(2, 3));
  EXPECT_THAT(rows_in(packs, 1), ElementsAre(4, 1));
  EXPECT_THAT(rows_in(packs, 2), ElementsAre(0));
  EXPECT_EQ(packs.sizes()[0].tokens, 10);
  EXPECT_EQ(packs.sizes()[0].targets, 8) << "each row's first token is no target";
  EXPECT_EQ(packs.sizes()[2].tokens, 2);
  EXPECT_DOUBLE_EQ(packs.filled(), 22.0 / 30);
}

/// The same rule, by examining every pack for every row.
std::vector<std::vector<int64_t>> slow_packs(const std::vector<RowSize>& rows, int64_t capacity) {
  std::vector<int64_t> order(rows.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::ranges::stable_sort(order, std::greater<>(), [&](int64_t row) { return rows[row].tokens; });
  std::vector<std::vector<int64_t>> packs;
  std::vector<int64_t> room;
  for (const int64_t row : order) {
    int64_t best = -1;
    for (int64_t pack = 0; pack < std::ssize(packs); ++pack)
      if (room[pack] >= rows[row].tokens && (best < 0 || room[pack] < room[best])) best = pack;
    if (best < 0) {
      best = std::ssize(packs);
      packs.emplace_back();
      room.push_back(capacity);
    }
    packs[best].push_back(row);
    room[best] -= rows[row].tokens;
  }
  return packs;
}

TEST(Packs, EveryRowIsInOnePackByTheRule) {
  std::mt19937 draw(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> tokens(1 + draw() % 60);
    for (int32_t& count : tokens) count = static_cast<int32_t>(1 + draw() % 32);
    const auto rows = rows_of_sizes(tokens);
    const Packs packs(rows, 32);
    const auto want = slow_packs(rows, 32);
    ASSERT_EQ(packs.count(), std::ssize(want));
    for (int64_t pack = 0; pack < packs.count(); ++pack)
      ASSERT_EQ(rows_in(packs, pack), want[pack]) << "round " << round;
  }
}

TEST(Packs, ARowThatDoesNotFitFailsACheck) {
  EXPECT_DEATH(Packs(rows_of_sizes({11}), 10), "row.tokens <= capacity");
}

TEST(Packs, EqualTrlsPacks) {
  const auto cases = nlohmann::json::parse(read_file(fixtures() + "/packs_oracle.json"));
  ASSERT_GE(cases.size(), 6u);
  for (const auto& one : cases) {
    const auto rows = rows_of_sizes(one["lengths"].get<std::vector<int32_t>>());
    const auto capacity = one["capacity"].get<int64_t>();
    const Packs wrapped(rows, capacity, PackingStrategy::Wrapped);
    ASSERT_EQ(wrapped.count(), std::ssize(one["wrapped"]));
    for (int64_t pack = 0; pack < wrapped.count(); ++pack) {
      nlohmann::json parts;
      for (const RowPart& part : wrapped.parts(pack))
        parts.push_back({part.row, part.begin, part.tokens});
      ASSERT_EQ(parts, one["wrapped"][pack]) << "pack " << pack;
    }
    if (!one.contains("bfd_split")) continue;
    // Rows of equal length are interchangeable; the two orders differ.
    const auto& want = one["bfd_split"];
    const Packs split(rows, capacity, PackingStrategy::BfdSplit);
    ASSERT_EQ(split.count(), std::ssize(want));
    for (int64_t pack = 0; pack < split.count(); ++pack) {
      std::vector<int32_t> tokens, its;
      for (const RowPart& part : split.parts(pack)) tokens.push_back(part.tokens);
      for (const auto& part : want[pack]) its.push_back(part[2]);
      ASSERT_EQ(tokens, its) << "pack " << pack;
    }
  }
}

TEST(Packs, EveryTokenIsInOnePartAndTheTargetsAreBounds) {
  std::mt19937 draw(23);
  for (int round = 0; round < 300; ++round) {
    const auto capacity = static_cast<int32_t>(1 + draw() % 20);
    std::vector<std::vector<int32_t>> labels(1 + draw() % 1500 / (1 + draw() % 40));
    std::vector<RowSize> rows;
    for (auto& row : labels) {
      row.resize(1 + draw() % 50);
      for (int32_t& label : row) label = draw() % 3 ? 1 : kIgnoredLabel;
      rows.push_back({static_cast<int32_t>(row.size()),
                      static_cast<int32_t>(std::count(row.begin() + 1, row.end(), 1))});
    }
    const auto row_at = [&](int64_t row) -> Result<Sample> {
      Sample sample{.input_ids = {}, .labels = labels[row]};
      for (int32_t i = 0; i < rows[row].tokens; ++i)
        sample.input_ids.push_back(static_cast<int32_t>(row * 64 + i));
      return sample;
    };
    for (const auto strategy : {PackingStrategy::BfdSplit, PackingStrategy::Wrapped}) {
      const Packs packs(rows, capacity, strategy);
      std::vector<int32_t> seen;
      for (int64_t pack = 0; pack < packs.count(); ++pack) {
        const auto samples = packs.samples(pack, row_at);
        ASSERT_TRUE(samples);
        if (strategy == PackingStrategy::Wrapped) {
          ASSERT_EQ(samples->size(), 1u);
        }
        int32_t tokens = 0, targets = 0;
        for (const Sample& sample : *samples) {
          ASSERT_LE(std::ssize(sample.input_ids), packs.longest_row());
          ASSERT_EQ(sample.input_ids.size(), sample.labels.size());
          tokens += static_cast<int32_t>(sample.input_ids.size());
          targets +=
              static_cast<int32_t>(std::count(sample.labels.begin() + 1, sample.labels.end(), 1));
          for (size_t i = 0; i < sample.labels.size(); ++i) {
            const int32_t id = sample.input_ids[i];
            ASSERT_EQ(sample.labels[i], labels[id / 64][id % 64]);
          }
          seen.insert(seen.end(), sample.input_ids.begin(), sample.input_ids.end());
        }
        ASSERT_EQ(tokens, packs.sizes()[pack].tokens);
        ASSERT_LE(tokens, capacity);
        ASSERT_LE(targets, packs.sizes()[pack].targets);
      }
      if (strategy == PackingStrategy::BfdSplit) std::ranges::sort(seen);
      std::vector<int32_t> all;
      for (int64_t row = 0; row < std::ssize(rows); ++row)
        for (int32_t i = 0; i < rows[row].tokens; ++i)
          all.push_back(static_cast<int32_t>(row * 64 + i));
      ASSERT_EQ(seen, all) << "round " << round;
    }
  }
}

TEST(Packs, ARowWithFewerTokensThanBeforeIsAnError) {
  const Packs packs(rows_of_sizes({5, 7}), 4, PackingStrategy::Wrapped);
  const auto row_at = [](int64_t) -> Result<Sample> {
    return Sample{.input_ids = {1, 2}, .labels = {1, 2}};
  };
  const auto samples = packs.samples(packs.count() - 1, row_at);
  ASSERT_FALSE(samples);
  EXPECT_EQ(samples.error().kind, ErrorKind::Environment);
}

}  // namespace
}  // namespace dsj::data

// The linear scan, the heap and the plain definition give the same ids.
#include "engine/data/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include "tests/engine/data/text_generator.h"

namespace dsj::data {
namespace {

/// 4 letters as ids 0 .. 3 and random merges; every other byte is id 0.
struct RandomMerges {
  std::vector<std::tuple<int32_t, int32_t, int32_t>> merges;  // left, right, result; rank = index
  std::array<int32_t, 256> bytes{};

  explicit RandomMerges(uint64_t seed) {
    Lcg r(seed);
    for (int i = 0; i < 4; ++i) bytes[static_cast<std::size_t>('a' + i)] = i;
    int32_t next = 4;
    for (int i = 0; i < 40; ++i) {
      const auto left = static_cast<int32_t>(r.below(static_cast<std::size_t>(next)));
      const auto right = static_cast<int32_t>(r.below(static_cast<std::size_t>(next)));
      bool known = false;
      for (const auto& [l, rr, result] : merges) known |= l == left && rr == right;
      if (!known) merges.emplace_back(left, right, next++);
    }
  }
  Bpe build(bool whole_pieces = false, StringTable ids = StringTable()) const {
    MergeTable table(1);  // grows
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const auto& [left, right, result] = merges[i];
      table.insert(left, right, {static_cast<uint32_t>(i), result});
    }
    return Bpe(bytes, std::move(table), std::move(ids), whole_pieces);
  }
  std::vector<int32_t> plainly(std::string_view text) const {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(bytes[static_cast<uint8_t>(c)]);
    while (true) {
      for (const auto& [left, right, result] : merges) {
        for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
          if (ids[i] != left || ids[i + 1] != right) continue;
          ids[i] = result;
          ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
          goto again;
        }
      }
      return ids;
    again:;
    }
  }
};

TEST(Bpe, EqualsTheDefinitionAtEveryLength) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const RandomMerges model(seed);
    const Bpe bpe = model.build();
    PieceCache cache;
    Lcg r(seed + 100);
    for (std::size_t length = 0; length < 120; length += 7) {
      std::string text;
      for (std::size_t i = 0; i < length; ++i) text += static_cast<char>('a' + r.below(4));
      const auto expected = model.plainly(text);
      for (int round = 0; round < 2; ++round) {  // the second round uses the cache
        std::vector<int32_t> ids;
        bpe.encode(text, &cache, ids);
        EXPECT_EQ(ids, expected) << text;
      }
    }
  }
}

TEST(Bpe, AWholePieceTakesPrecedenceOverMerges) {
  const RandomMerges model(1);
  std::vector<int32_t> ids;
  StringTable whole;
  whole.insert("abcd", 77);
  model.build(true, whole).encode("abcd", nullptr, ids);
  EXPECT_EQ(ids, std::vector<int32_t>{77});
}

TEST(StringTable, FindsInsertedStrings) {
  StringTable table;
  for (int32_t i = 0; i < 1000; ++i) table.insert("key" + std::to_string(i), i);
  table.insert("", 7);
  table.insert("key5", -5);
  for (int32_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(table.find("key" + std::to_string(i)), i == 5 ? -5 : i);
  }
  EXPECT_EQ(table.find(""), 7);
  EXPECT_EQ(table.find("key1000"), std::nullopt);
  EXPECT_EQ(table.size(), 1001u);
  EXPECT_EQ(table.key(5), "key5");
}

TEST(MergeTable, KeepsTheLaterOfTwo) {
  MergeTable table(1);
  table.insert(1, 2, {.rank = 0, .result = 10});
  table.insert(1, 2, {.rank = 5, .result = 11});
  EXPECT_EQ(table.find(1, 2).rank, 5u);
  EXPECT_EQ(table.find(2, 1).rank, MergeTable::kNoRank);
}

TEST(PieceCache, StaysBounded) {
  PieceCache cache;
  const int32_t id = 9;
  for (std::size_t i = 0; i <= PieceCache::kPiecesMax; ++i) {
    cache.store("p" + std::to_string(i), &id, 1);
  }
  std::vector<int32_t> ids;
  EXPECT_FALSE(cache.find("p0", ids));
  EXPECT_TRUE(cache.find("p" + std::to_string(PieceCache::kPiecesMax), ids));
  cache.store(std::string(PieceCache::kPieceBytesMax + 1, 'x'), &id, 1);
  EXPECT_FALSE(cache.find(std::string(PieceCache::kPieceBytesMax + 1, 'x'), ids));
  EXPECT_EQ(ids, std::vector<int32_t>{9});
}

}  // namespace
}  // namespace dsj::data

#include "engine/data/long_rows.h"

#include <gtest/gtest.h>

#include "common/files/memory_files.h"
#include "tests/engine/data/support.h"

namespace dsj::data {
namespace {

std::string row(int64_t tokens, int64_t masked) {
  std::string ids, labels;
  for (int64_t i = 0; i < tokens; ++i) {
    ids += (i ? "," : "") + std::to_string(i % 50);
    labels += (i ? "," : "") + std::to_string(i < masked ? -100 : i % 50);
  }
  return R"({"input_ids": [)" + ids + R"(], "labels": [)" + labels + "]}\n";
}

struct LongRowsTest : testing::Test {
  MemoryFiles files;
  std::unique_ptr<Dataset> dataset;
  void open(const std::string& text, int64_t most) {
    ASSERT_TRUE(files.write_synced("d.jsonl", text));
    auto opened =
        Dataset::open(files, "d.jsonl", nullptr, {.max_seq_length = most, .vocab_size = 50});
    ASSERT_TRUE(opened) << opened.error().to_string();
    dataset = std::move(*opened);
  }
};

TEST_F(LongRowsTest, RowsTokensAndLostTargetsAreCounted) {
  std::string text = row(32, 0) + row(33, 0) + row(40, 35) + row(40, 40) + row(5, 5);
  text += row(50, 31) + row(60, 32);  // label 31 is the last that is kept
  open(text, 32);
  for (const int threads : {1, 3, 64}) {
    const auto all = count_long_rows(*dataset, 0, 7, threads);
    ASSERT_TRUE(all) << all.error().to_string();
    EXPECT_EQ(all->rows, 7);
    EXPECT_EQ(all->cut, 5);
    EXPECT_EQ(all->tokens, 1 + 8 + 8 + 18 + 28);
    EXPECT_EQ(all->without_target, 2) << "a row that never had one has lost none";
    EXPECT_FALSE(all->estimated);
  }
  const auto part = count_long_rows(*dataset, 1, 2, 2);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->cut, 2);
  EXPECT_EQ(dataset->truncated_rows(), 0) << "what is only counted is not trained on";
}

/// The bound by bytes skips no row that is cut: compared with a count of every row.
TEST_F(LongRowsTest, NoCutRowIsSkippedBecauseOfItsBytes) {
  std::string text;
  for (int64_t i = 0; i < 400; ++i) text += row(1 + (i * 7) % 90, i % 50);
  for (const int64_t most : {1, 8, 31, 64, 89, 90}) {
    open(text, most);
    int64_t cut = 0, tokens = 0;
    for (int64_t i = 0; i < dataset->rows(); ++i) {
      const auto whole = dataset->whole(i);
      ASSERT_TRUE(whole);
      const int64_t over = std::ssize(whole->input_ids) - most;
      EXPECT_LE(std::ssize(whole->input_ids), dataset->tokens_at_most(i));
      cut += over > 0;
      tokens += std::max<int64_t>(0, over);
    }
    const auto counted = count_long_rows(*dataset, 0, dataset->rows(), 2);
    ASSERT_TRUE(counted);
    EXPECT_EQ(counted->cut, cut) << most;
    EXPECT_EQ(counted->tokens, tokens) << most;
  }
}

TEST_F(LongRowsTest, LargeDataIsEstimatedFromASample) {
  std::string text;
  for (int64_t i = 0; i < 1000; ++i) text += row(100, 0);
  open(text, 60);
  const auto counted = count_long_rows(*dataset, 0, 1000, 2, /*bytes_max=*/100'000);
  ASSERT_TRUE(counted);
  EXPECT_TRUE(counted->estimated);
  EXPECT_EQ(counted->cut, 1000);
  EXPECT_EQ(counted->tokens, 40'000);
}

}  // namespace
}  // namespace dsj::data

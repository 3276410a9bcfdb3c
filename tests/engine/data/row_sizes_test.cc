#include "engine/data/row_sizes.h"

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

TEST(RowSizes, EqualThoseOfTheCutRowsWithAnyNumberOfThreads) {
  MemoryFiles files;
  std::string text;
  for (int64_t i = 0; i < 300; ++i) text += row(1 + i % 40, i % 5);
  ASSERT_TRUE(files.write_synced("d.jsonl", text));
  const auto dataset =
      Dataset::open(files, "d.jsonl", nullptr, {.max_seq_length = 32, .vocab_size = 50});
  ASSERT_TRUE(dataset) << dataset.error().to_string();
  for (const int threads : {1, 3, 64}) {
    const auto sizes = row_sizes(**dataset, 10, 290, threads);
    ASSERT_TRUE(sizes);
    ASSERT_EQ(sizes->size(), 290u);
    for (int64_t i = 0; i < 290; ++i) {
      const int64_t tokens = std::min<int64_t>(32, 1 + (i + 10) % 40), masked = (i + 10) % 5;
      EXPECT_EQ((*sizes)[i].tokens, tokens);
      EXPECT_EQ((*sizes)[i].targets, std::max<int64_t>(0, tokens - std::max<int64_t>(1, masked)))
          << "the first label is nobody's target";
    }
    EXPECT_EQ(tokens_of(*sizes)[3], (*sizes)[3].tokens);
  }
}

TEST(RowSizes, TheFirstRowThatCannotBeReadIsNamed) {
  const TempDir folder;
  std::string text;
  for (int64_t i = 0; i < 400; ++i) text += row(5, 0);
  const std::string file = folder.write("d.jsonl", text);
  const auto dataset = Dataset::open(file, nullptr, {.vocab_size = 50});
  ASSERT_TRUE(dataset) << dataset.error().to_string();
  const size_t one = text.size() / 400;
  for (const size_t bad : {150, 151, 390}) text[bad * one] = 'x';
  folder.write("d.jsonl", text);  // the opened file
  const auto sizes = row_sizes(**dataset, 0, 400, 4);
  ASSERT_FALSE(sizes);
  EXPECT_NE(sizes.error().to_string().find("row 150"), std::string::npos)
      << sizes.error().to_string();
}

}  // namespace
}  // namespace dsj::data

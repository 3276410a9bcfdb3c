#include "engine/data/batches/analysis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "common/files/memory_files.h"
#include "engine/data/batches/indexed_lists.h"
#include "tests/engine/data/support.h"

namespace dsj::data {
namespace {

TEST(Analysis, RowsAreMeasured) {
  const TempDir folder;
  const auto path = folder.write("rows.json", R"([{"input_ids": [1, 1, 2], "labels": [1, 1, 2]},
      {"input_ids": [1, 3, 1, 1, 1], "labels": [1, 3, 1, 1, 1]}])");
  const auto dataset = Dataset::open(path, nullptr, {.max_seq_length = 4, .vocab_size = 8});
  ASSERT_TRUE(dataset) << dataset.error().to_string();
  for (const int threads : {1, 3}) {
    EXPECT_EQ(metric_of_rows(**dataset, "length", threads).value(), (std::vector<int64_t>{3, 4}));
    // Five of the 7 tokens, after cutting, are 1.
    const double one = std::log(7.0 / 5), other = std::log(7.0);
    EXPECT_EQ(metric_of_rows(**dataset, "vocabulary_rarity", threads).value(),
              (std::vector<int64_t>{std::llround(2 * one + other), std::llround(3 * one + other)}));
  }
}

TEST(Analysis, WritesDeepSpeedsFiles) {
  MemoryFiles files;
  std::vector<int64_t> of_row(450);
  for (size_t row = 0; row < of_row.size(); ++row)
    of_row[row] = static_cast<int64_t>(row * 7 % 225);
  ASSERT_TRUE(write_metric(files, "out", "length", of_row));
  const auto read = [&](const char* what) {
    const auto lists = read_lists(files, std::string("out/length/length_") + what);
    EXPECT_TRUE(lists) << what;
    return lists ? *lists : Lists{};
  };
  EXPECT_EQ(read("sample_to_metric").values, of_row);
  const Lists values = read("index_to_metric"), rows = read("index_to_sample");
  std::vector<int64_t> rising(225);
  std::iota(rising.begin(), rising.end(), 0);
  EXPECT_EQ(values.values, rising);
  ASSERT_EQ(rows.count(), 225);
  for (int64_t i = 0; i < rows.count(); ++i)
    for (const int64_t row : rows.list(i)) EXPECT_EQ(of_row[static_cast<size_t>(row)], i);
  // 225 values are merged in groups of two.
  const Lists merged = read("index_to_sample_percentile_merged");
  EXPECT_EQ(merged.count(), 113);
  EXPECT_EQ(merged.values, rows.values);
}

}  // namespace
}  // namespace dsj::data

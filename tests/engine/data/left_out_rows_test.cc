// Rows that a data set leaves out: empty texts, and with skipBadRows rows that cannot be read.
#include <gtest/gtest.h>

#include <random>

#include "common/files/memory_files.h"
#include "engine/data/dataset.h"
#include "tests/engine/data/qwen_tokenizer.h"

namespace dsj::data {
namespace {

constexpr const char* kDirectory = "rows";

class LeftOut : public ::testing::Test {
 protected:
  DatasetOptions options(bool skips) const {
    return {.vocab_size = 5000,
            .chat_template = "chatml",
            .skips_bad_rows = skips,
            .cache_directory = cached_ ? kDirectory : "",
            .cached_bytes_min = 1};
  }
  Result<std::unique_ptr<Dataset>> open(const std::vector<std::string>& rows, bool skips) {
    std::string text;
    for (const std::string& row : rows) text += row + "\n";
    EXPECT_TRUE(files_.write_synced("d.jsonl", text));
    counted_ = Dataset::count_rows(files_, "d.jsonl", options(skips));
    return Dataset::open(files_, "d.jsonl", &qwen_tokenizer(), options(skips));
  }
  static std::string joined(const std::vector<std::string>& notes) {
    std::string all;
    for (const std::string& note : notes) all += note + "\n";
    return all;
  }

  MemoryFiles files_;
  bool cached_ = false;
  Result<int64_t> counted_ = 0;
};

/// 36 % of WikiText's rows are empty. Wherever they are, the data set equals that of the other
/// rows, also for a plan that reads no row, and when a cache has the file.
TEST_F(LeftOut, EmptyTextsAreLeftOut) {
  std::mt19937 draw(11);
  ASSERT_TRUE(files_.make_dir(kDirectory));
  for (int round = 0; round < 30; ++round) {
    std::vector<std::string> all, with_text;
    for (int row = 0; row < 40; ++row) {
      if (draw() % 3 == 0) {
        all.push_back(draw() % 2 == 0 ? R"({"text": ""})" : R"({"id":"","text":""})");
        continue;
      }
      with_text.push_back(R"({"text": "paragraph )" + std::to_string(row) + R"( \n"})");
      all.push_back(with_text.back());
    }
    cached_ = false;
    const auto expected = open(with_text, false);
    ASSERT_TRUE(expected) << expected.error().to_string();
    cached_ = round % 2 == 0;
    for (int again = 0; again < (cached_ ? 2 : 1); ++again) {
      const auto found = open(all, false);
      ASSERT_TRUE(found) << found.error().to_string();
      ASSERT_EQ((*found)->rows(), std::ssize(with_text));
      EXPECT_EQ(counted_.value(), std::ssize(with_text));
      for (int64_t row = 0; row < (*found)->rows(); ++row)
        EXPECT_EQ((*found)->at(row)->input_ids, (*expected)->at(row)->input_ids);
      const size_t left_out = all.size() - with_text.size();
      EXPECT_NE(joined((*found)->notes())
                    .find("left out: " + std::to_string(left_out) +
                          (left_out == 1 ? " row" : " rows") + ": text is empty\n"),
                std::string::npos);
    }
  }
  const auto none = open({R"({"text": ""})"}, false);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("text is empty"), std::string::npos);
}

/// With skipBadRows a file equals that of its good rows; without, it is refused.
TEST_F(LeftOut, SkipBadRowsLeavesBadRowsOut) {
  const std::vector<std::string> bad = {
      R"({"messages": [{"role": "user", "content": "alone"}]})",
      R"({"messages": []})",
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": 3}]})",
      R"({"messages": [{"content": "q"}, {"role": "assistant", "content": "a"}]})",
      R"({"messages": "text"})",
      "not JSON",
      "[1]",
      R"({"prompt": "q", "chosen": "a", "rejected": "b"})",
      R"({"text": "another shape"})",
      R"({"tools": [{"name": "f"}], "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})"};
  std::mt19937 draw(5);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::string> all, good;
    for (int row = 0; row < 20; ++row) {
      // The first row determines the kind of the file.
      if (row > 0 && draw() % 4 == 0 && all.size() - good.size() < 6) {
        all.push_back(bad[draw() % bad.size()]);
        continue;
      }
      good.push_back(R"({"messages": [{"role": "user", "content": "q"}, )"
                     R"({"role": "assistant", "content": "a)" +
                     std::to_string(row) + R"("}]})");
      all.push_back(good.back());
    }
    if (all.size() == good.size()) continue;
    EXPECT_FALSE(open(all, false));
    const auto expected = open(good, false);
    const auto found = open(all, true);
    ASSERT_TRUE(found) << found.error().to_string();
    ASSERT_EQ((*found)->rows(), (*expected)->rows());
    for (int64_t row = 0; row < (*found)->rows(); ++row)
      EXPECT_EQ((*found)->at(row)->input_ids, (*expected)->at(row)->input_ids);
    EXPECT_GE(counted_.value(), (*found)->rows());
    EXPECT_NE(joined((*found)->notes()).find("left out: "), std::string::npos);
  }
  const auto none = open({bad[0], bad[1]}, true);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("no rows that can be read: messages: "), std::string::npos)
      << none.error().to_string();
}

}  // namespace
}  // namespace dsj::data

#include "engine/data/files/data_record.h"

#include <gtest/gtest.h>

#include <functional>

#include "common/files/memory_files.h"

namespace dsj::data {
namespace {

using nlohmann::json;

const DataRecord kSaved{.train = "aa",
                        .eval = "ee",
                        .tokenizer = "tt",
                        .rows = 48,
                        .max_seq_length = 128,
                        .chat_template = "auto"};

DataChange after(const std::function<void(DataRecord&)>& change, bool by_length = false) {
  DataRecord saved = kSaved;
  saved.by_length = by_length;
  DataRecord now = saved;
  change(now);
  return data_change(to_json(saved), to_json(now));
}

TEST(DataRecordTest, EqualRecordsGiveNoMessage) {
  const auto same = after([](DataRecord&) {});
  EXPECT_TRUE(same.told.empty() && same.breaks.empty());
  for (const json& unknown : {json(), json::object(), json("text")}) {
    EXPECT_TRUE(data_change(unknown, to_json(kSaved)).breaks.empty());
    EXPECT_TRUE(data_change(to_json(kSaved), unknown).breaks.empty());
  }
}

TEST(DataRecordTest, OtherRowsBreakTheOrder) {
  const auto content = after([](DataRecord& now) { now.train = "bb", now.rows = 60; });
  ASSERT_EQ(content.breaks.size(), 1u);
  EXPECT_EQ(content.breaks[0], "the data file has other content (48 then, 60 now rows)");
  EXPECT_EQ(after([](DataRecord& now) { now.split_rows = 4; }).breaks.size(), 1u);
  EXPECT_EQ(after([](DataRecord& now) { now.by_length = true; }).breaks.size(), 1u);
}

TEST(DataRecordTest, OtherTokensBreakTheOrderOnlyIfItDependsOnLengths) {
  for (const auto& change : std::vector<std::function<void(DataRecord&)>>{
           [](DataRecord& now) { now.max_seq_length = 64; },
           [](DataRecord& now) { now.chat_template = "chatml"; },
           [](DataRecord& now) { now.default_system = "Be brief."; },
           [](DataRecord& now) { now.tokenizer = "other"; }}) {
    EXPECT_EQ(after(change).told.size(), 1u);
    EXPECT_TRUE(after(change).breaks.empty());
    EXPECT_EQ(after(change, true).breaks.size(), 1u);
  }
  const auto eval = after([](DataRecord& now) { now.eval = "other"; }, true);
  EXPECT_EQ(eval.told.size(), 1u);
  EXPECT_TRUE(eval.breaks.empty());
}

TEST(DataRecordTest, ContentDependsOnTheBytesOnly) {
  MemoryFiles files;
  ASSERT_TRUE(files.make_dir("/m"));
  for (const char* path : {"/a.json", "/b.json"}) ASSERT_TRUE(files.write_synced(path, "[1]"));
  const std::string a = content_of(files, "/a.json").value();
  EXPECT_EQ(content_of(files, "/b.json"), a);
  ASSERT_TRUE(files.write_synced("/b.json", "[2]"));
  EXPECT_NE(content_of(files, "/b.json"), a);
  EXPECT_FALSE(content_of(files, "/none.json"));
  EXPECT_EQ(tokenizer_content(files, "/m"), "");
  ASSERT_TRUE(files.write_synced("/m/tokenizer.json", "{}"));
  const std::string one = tokenizer_content(files, "/m").value();
  EXPECT_NE(one, "");
  ASSERT_TRUE(files.write_synced("/m/model.safetensors", "weights"));
  EXPECT_EQ(tokenizer_content(files, "/m"), one);
  ASSERT_TRUE(files.write_synced("/m/tokenizer_config.json", "{}"));
  EXPECT_NE(tokenizer_content(files, "/m"), one);
}

}  // namespace
}  // namespace dsj::data

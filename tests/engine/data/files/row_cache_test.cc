#include "engine/data/files/row_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "common/files/counting_files.h"
#include "common/files/memory_files.h"
#include "engine/data/dataset.h"

namespace dsj::data {
namespace {

const std::string kKey(32, 'a'), kOtherKey(32, 'b');

CheckedRows some_rows() {
  return {RowKind::Chat, 7, {{1, 10}, {12, 30}, {42, 8}}, {{"id", 3}, {"messages[].name", 1}}};
}

TEST(RowEntry, IsReadBackUnchanged) {
  const auto rows = from_entry(kKey, to_entry(kKey, some_rows()), 50);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->kind, RowKind::Chat);
  EXPECT_EQ(rows->chat_template, 7);
  EXPECT_EQ(rows->places, some_rows().places);
  EXPECT_EQ(rows->unread, some_rows().unread);
}

TEST(RowEntry, DamageAnywhereIsDetected) {
  const std::string sound = to_entry(kKey, some_rows());
  for (size_t i = 0; i < sound.size(); ++i) {
    std::string damaged = sound;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    EXPECT_FALSE(from_entry(kKey, damaged, 50)) << "byte " << i;
    EXPECT_FALSE(from_entry(kKey, sound.substr(0, i), 50)) << "cut at " << i;
  }
  EXPECT_FALSE(from_entry(kKey, sound + "x", 50));
  EXPECT_FALSE(from_entry(kOtherKey, sound, 50)) << "of other bytes";
}

TEST(RowEntry, RowsMustFollowEachOtherInTheFile) {
  const std::vector<std::vector<Place>> bad = {
      {}, {{-1, 5}}, {{0, -1}}, {{0, 51}}, {{60, 1}}, {{0, 10}, {9, 5}}, {{0, INT64_MAX}}};
  for (const auto& places : bad)
    EXPECT_FALSE(from_entry(kKey, to_entry(kKey, {RowKind::Tokens, 0, places, {}}), 50));
  EXPECT_TRUE(from_entry(kKey, to_entry(kKey, some_rows()), 50));
  EXPECT_FALSE(from_entry(kKey, to_entry(kKey, some_rows()), 49)) << "the file is shorter";
}

TEST(RowKey, DependsOnTheBytesAndTheConditions) {
  MemoryFiles files;
  const auto key = [&](const std::string& content, const std::string& conditions) {
    EXPECT_TRUE(files.write_synced("d", content));
    const auto file = files.open_read("d");
    return row_key(**file, conditions).value();
  };
  const std::string long_text(3'000'000, 'x');
  std::string changed = long_text;
  changed[2'500'000] = 'y';
  EXPECT_EQ(key(long_text, "json 5"), key(long_text, "json 5"));
  EXPECT_EQ(key(long_text, "json 5").size(), kKey.size());
  EXPECT_NE(key(long_text, "json 5"), key(changed, "json 5"));
  EXPECT_NE(key(long_text, "json 5"), key(long_text, "json 6"));
  EXPECT_NE(key(long_text, "json 5"), key(long_text + "x", "json 5"));
}

TEST(RowCache, FindsStoredEntries) {
  MemoryFiles files;
  RowCache cache(files, {.directory = "/c/rows", .now = 100, .process = 7});
  EXPECT_FALSE(cache.find(kKey, 50)) << "there is no directory yet";
  ASSERT_TRUE(cache.store(kKey, some_rows()));
  ASSERT_TRUE(cache.find(kKey, 50));
  EXPECT_FALSE(cache.find(kOtherKey, 50));
  // Another process at the same time.
  RowCache other(files, {.directory = "/c/rows", .now = 100, .process = 8});
  ASSERT_TRUE(other.store(kKey, some_rows()));
  EXPECT_TRUE(cache.find(kKey, 50));
  EXPECT_EQ(files.list_dir("/c/rows")->size(), 1u) << "nothing temporary is left";
}

TEST(RowCache, TheOldestEntriesMakeRoom) {
  MemoryFiles files;
  const auto bytes = static_cast<int64_t>(to_entry(kKey, some_rows()).size());
  for (int64_t i = 0; i < 5; ++i) {
    RowCache cache(files, {.directory = "/c", .bytes_max = 3 * bytes, .now = 1000 - 100 * i});
    ASSERT_TRUE(cache.store(std::string(32, static_cast<char>('a' + i)), some_rows()));
  }
  const RowCache cache(files, {.directory = "/c"});
  for (const char key : {'a', 'b', 'c'}) EXPECT_TRUE(cache.find(std::string(32, key), 50)) << key;
  for (const char key : {'d', 'e'}) EXPECT_FALSE(cache.find(std::string(32, key), 50)) << key;
  RowCache small(files, {.directory = "/c", .bytes_max = bytes, .now = 5000});
  ASSERT_TRUE(small.store(kOtherKey, some_rows())) << "an entry that would fill it is not kept";
  EXPECT_TRUE(cache.find(std::string(32, 'c'), 50));
}

TEST(RowCache, UsesTheUsersCacheDirectory) {
  std::map<std::string, std::string> variables;
  const auto directory = [&] {
    return row_cache_directory([&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(directory(), "");
  variables["HOME"] = "/home/u";
  EXPECT_EQ(directory(), "/home/u/.cache/dsj/rows");
  variables["XDG_CACHE_HOME"] = "/fast";
  EXPECT_EQ(directory(), "/fast/dsj/rows");
  variables["DSJ_ROWS_CACHE"] = "1";
  EXPECT_EQ(directory(), "/fast/dsj/rows");
  variables["DSJ_ROWS_CACHE"] = "0";
  EXPECT_EQ(directory(), "");
}

// ---- a data set with a cache

struct CachedDataset : testing::Test {
  MemoryFiles disk;
  CountingFiles files{disk};
  std::string text =
      R"([{"input_ids": [1, 2], "labels": [1, 2]}, {"input_ids": [3, 4], "labels": [3, 4]}])";
  DatasetOptions options{.vocab_size = 10, .cache_directory = "/c", .cached_bytes_min = 10};

  void SetUp() override {
    text += std::string(1 << 21, ' ');
    put("d.json");
  }
  void put(const std::string& name) { ASSERT_TRUE(disk.write_synced(name, text)); }
  /// How often the file's bytes were read, except for its head: twice by a check that is
  /// cached, once by a hit.
  double reads(const std::string& name = "d.json") {
    files.reset();
    const auto dataset = Dataset::open(files, name, nullptr, options);
    if (!dataset) return -1;
    EXPECT_EQ((*dataset)->rows(), 2);
    const double read = static_cast<double>(files.of(name).bytes_read);
    EXPECT_EQ((*dataset)->at(1)->input_ids, (std::vector<int32_t>{3, 4}));
    return std::round(read / static_cast<double>(text.size()));
  }
};

TEST_F(CachedDataset, IsCheckedOnce) {
  EXPECT_EQ(reads(), 2);
  EXPECT_EQ(reads(), 1);
  put("copy.json");
  EXPECT_EQ(reads("copy.json"), 1) << "by content, not by name";
}

TEST_F(CachedDataset, OtherBytesVocabularyOrFormAreCheckedAgain) {
  EXPECT_EQ(reads(), 2);
  options.vocab_size = 9;
  EXPECT_EQ(reads(), 2);
  options.vocab_size = 4;
  EXPECT_EQ(reads(), -1) << "token 4 is outside now";
  options.vocab_size = 10;
  text[text.find('2')] = '5';
  put("d.json");
  EXPECT_EQ(reads(), 2);
}

TEST_F(CachedDataset, BadRowsAreNeverCached) {
  text.replace(text.find("[3, 4], \"labels\""), 6, "[3, 99");
  put("d.json");
  EXPECT_EQ(reads(), -1);
  EXPECT_EQ(reads(), -1);
  EXPECT_FALSE(disk.exists("/c").value());
}

TEST_F(CachedDataset, ADamagedEntryIsReplaced) {
  EXPECT_EQ(reads(), 2);
  const std::string entry = "/c/" + disk.list_dir("/c")->front().name;
  ASSERT_TRUE(disk.write_synced(entry, disk.read_all(entry)->substr(0, 20)));
  EXPECT_EQ(reads(), 2);
  EXPECT_EQ(reads(), 1);
}

TEST_F(CachedDataset, SmallFilesReadersAndAnUnwritableDirectoryWorkWithoutIt) {
  options.cache_writes = false;
  EXPECT_EQ(reads(), 2);
  EXPECT_EQ(reads(), 2) << "nobody has stored it";
  options.cache_writes = true;
  options.cached_bytes_min = 100'000'000;
  EXPECT_EQ(reads(), 1) << "checked without a look at the cache";
  EXPECT_FALSE(disk.exists("/c").value());
  options.cached_bytes_min = 10;
  options.cache_directory = "d.json";  // a file instead of a directory
  EXPECT_EQ(reads(), 2);
  options.cache_directory.clear();
  EXPECT_EQ(reads(), 1);
}

}  // namespace
}  // namespace dsj::data

#include "engine/data/batches/indexed_lists.h"

#include <gtest/gtest.h>

#include <cstring>

#include "common/files/memory_files.h"

namespace dsj::data {
namespace {

Lists lists_of(const std::vector<std::vector<int64_t>>& all) {
  Lists lists;
  for (const auto& one : all) lists.add(one);
  return lists;
}

template <typename T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Writes the two files as DeepSpeed does, with numbers of type T and this code.
template <typename T>
void write_as(Files& files, uint8_t code, const std::vector<std::vector<T>>& all) {
  std::string idx("MMIDIDX\0\0", 9), bin;
  put<uint64_t>(idx, 1);
  put(idx, code);
  put<uint64_t>(idx, all.size());
  put<uint64_t>(idx, 2);
  for (const auto& one : all) put(idx, static_cast<int32_t>(one.size()));
  for (const auto& one : all) {
    put(idx, static_cast<int64_t>(bin.size()));
    for (const T value : one) put(bin, value);
  }
  put<int64_t>(idx, 0);
  put<int64_t>(idx, static_cast<int64_t>(all.size()));
  ASSERT_TRUE(files.write_synced("f.idx", idx));
  ASSERT_TRUE(files.write_synced("f.bin", bin));
}

TEST(IndexedLists, WrittenListsAreReadBack) {
  MemoryFiles files;
  const int64_t large = int64_t{1} << 40;
  for (const auto& all : {std::vector<std::vector<int64_t>>{{3, 1}, {}, {2}}, {{large, -1}}, {}}) {
    const Lists lists = lists_of(all);
    ASSERT_TRUE(write_lists(files, "f", lists));
    const auto read = read_lists(files, "f");
    ASSERT_TRUE(read) << read.error().to_string();
    EXPECT_EQ(read->values, lists.values);
    EXPECT_EQ(read->starts, lists.starts);
  }
  EXPECT_EQ(lists_of({{3, 1}, {2}}).list(1)[0], 2);
}

TEST(IndexedLists, ReadsTheTypesOfAllVersions) {
  MemoryFiles files;
  const auto same = [&] {
    const auto read = read_lists(files, "f");
    ASSERT_TRUE(read) << read.error().to_string();
    EXPECT_EQ(read->values, (std::vector<int64_t>{7, 1, 2}));
    EXPECT_EQ(read->count(), 2);
  };
  write_as<uint8_t>(files, 1, {{7}, {1, 2}}), same();
  write_as<int8_t>(files, 2, {{7}, {1, 2}}), same();
  write_as<int16_t>(files, 3, {{7}, {1, 2}}), same();
  write_as<int32_t>(files, 4, {{7}, {1, 2}}), same();
  write_as<int64_t>(files, 5, {{7}, {1, 2}}), same();
  // From 0.18 on, and before.
  write_as<uint16_t>(files, 6, {{7}, {1, 2}}), same();
  write_as<double>(files, 6, {{7}, {1, 2}}), same();
  write_as<uint32_t>(files, 7, {{7}, {1, 2}}), same();
  write_as<double>(files, 7, {{7}, {1, 2}}), same();
  write_as<uint64_t>(files, 8, {{7}, {1, 2}}), same();
  write_as<uint16_t>(files, 8, {{7}, {1, 2}}), same();
  write_as<uint32_t>(files, 9, {{7}, {1, 2}}), same();
  write_as<uint64_t>(files, 10, {{7}, {1, 2}}), same();
}

TEST(IndexedLists, RefusesDamagedFiles) {
  MemoryFiles files;
  const auto refused = [&](const std::string& what) {
    const auto read = read_lists(files, "f");
    ASSERT_FALSE(read) << what;
    EXPECT_EQ(read.error().kind, ErrorKind::BadInput) << what;
    EXPECT_NE(read.error().to_string().find(what), std::string::npos) << read.error().to_string();
  };
  refused("f.idx");  // both files are missing
  write_as<int32_t>(files, 4, {{7}, {1, 2}});
  const std::string idx = *files.read_all("f.idx"), bin = *files.read_all("f.bin");
  const auto with = [&](size_t at, char value) {
    std::string changed = idx;
    changed[at] = value;
    ASSERT_TRUE(files.write_synced("f.idx", changed));
  };
  with(0, 'X'), refused("MMIDIDX");
  with(9, 2), refused("version");
  with(17, 11), refused("of type 11");
  with(17, 5), refused("of type 5");
  with(18, 3), refused("its size");
  with(25, '\x7f'), refused("its size");
  with(33, '\x80'), refused("its size");
  with(37, '\x80'), refused("negative length");
  with(42, 1), refused("does not follow");
  ASSERT_TRUE(files.write_synced("f.idx", idx.substr(0, 20)));
  refused("MMIDIDX");
  ASSERT_TRUE(files.write_synced("f.idx", idx));
  ASSERT_TRUE(files.write_synced("f.bin", bin.substr(1)));
  refused("bytes for 3 numbers");
  write_as<double>(files, 6, {{0.5}}), refused("not whole");
  write_as<uint64_t>(files, 10, {{UINT64_MAX}}), refused("too large");
}

}  // namespace
}  // namespace dsj::data

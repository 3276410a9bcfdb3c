// One contract for the disk and for the fake in memory.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>

#include "common/files/memory_files.h"
#include "common/files/posix_files.h"

namespace dsj {
namespace {

struct Kind {
  std::string name;
  std::function<std::unique_ptr<Files>()> make;
};

class FilesContract : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(root_);
    files_ = GetParam().make();
    ASSERT_TRUE(files_->make_dirs(root_));
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::string at(const std::string& name) const { return path_join(root_, name); }
  std::string content(const std::string& name) {
    return files_->read_all(at(name)).value_or("(unreadable)");
  }
  Status put(const std::string& name, const std::string& text) {
    return files_->write_synced(at(name), text);
  }

  const std::string root_ = testing::TempDir() + "dsj_files_contract/deep/er";
  std::unique_ptr<Files> files_;
};

TEST_P(FilesContract, WritesInPiecesAndReadsByPosition) {
  auto file = files_->create_write(at("a"));
  ASSERT_TRUE(file);
  EXPECT_TRUE((*file)->append(as_bytes("hello ")));
  EXPECT_TRUE((*file)->append(as_bytes("")));
  EXPECT_TRUE((*file)->append(as_bytes("world")));
  EXPECT_TRUE((*file)->sync());
  EXPECT_TRUE((*file)->close());
  EXPECT_EQ(content("a"), "hello world");
  auto reader = files_->open_read(at("a"));
  ASSERT_TRUE(reader);
  EXPECT_EQ((*reader)->size(), 11);
  std::string middle(5, '?');
  EXPECT_TRUE((*reader)->read(3, std::as_writable_bytes(std::span(middle))));
  EXPECT_EQ(middle, "lo wo");
  EXPECT_TRUE((*reader)->read(11, {}));
}

TEST_P(FilesContract, WhatWasAppendedCanBeReplaced) {
  auto file = files_->create_write(at("a"));
  ASSERT_TRUE(file);
  EXPECT_TRUE((*file)->append(as_bytes("hello world")));
  EXPECT_TRUE((*file)->rewrite(0, as_bytes("J")));
  EXPECT_TRUE((*file)->rewrite(9, as_bytes("LD")));
  EXPECT_TRUE((*file)->rewrite(11, as_bytes("")));
  EXPECT_TRUE((*file)->append(as_bytes("!")));
  EXPECT_TRUE((*file)->sync());
  EXPECT_TRUE((*file)->close());
  EXPECT_EQ(content("a"), "Jello worLD!");
}

TEST_P(FilesContract, ReadPastTheEndSaysWhereTheFileEnds) {
  ASSERT_TRUE(put("a", "12345"));
  auto reader = files_->open_read(at("a"));
  std::string out(4, '?');
  const Status read = (*reader)->read(3, std::as_writable_bytes(std::span(out)));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().kind, ErrorKind::Environment);
  EXPECT_EQ(read.error().where, at("a"));
  EXPECT_EQ(read.error().message, "the file ends after 5 bytes, 7 are needed");
}

TEST_P(FilesContract, CreatingAgainEmptiesAndAnOpenReaderKeepsWhatItHas) {
  ASSERT_TRUE(put("a", "first"));
  auto reader = files_->open_read(at("a"));
  ASSERT_TRUE(put("b", "second"));
  ASSERT_TRUE(files_->rename(at("b"), at("a")));
  std::string out(5, '?');
  EXPECT_TRUE((*reader)->read(0, std::as_writable_bytes(std::span(out))));
  EXPECT_EQ(out, "first");
  EXPECT_EQ(content("a"), "second");
  ASSERT_TRUE(put("a", "3"));
  EXPECT_EQ(content("a"), "3");
}

TEST_P(FilesContract, MissingPathsAreBadInputWithThePath) {
  for (const Error& error :
       {files_->open_read(at("no")).error(), files_->create_write(at("no/file")).error(),
        files_->rename(at("no"), at("b")).error(), files_->remove(at("no")).error(),
        files_->list_dir(at("no")).error(), files_->sync_dir(at("no")).error(),
        files_->make_dir(at("no/dir")).error(), files_->exchange(at("no"), at("b")).error()}) {
    EXPECT_EQ(error.kind, ErrorKind::BadInput) << error.to_string();
    EXPECT_TRUE(error.where.starts_with(at("no"))) << error.to_string();
    EXPECT_NE(error.message.find("No such file"), std::string::npos) << error.to_string();
  }
  EXPECT_EQ(files_->kind(at("no")), EntryKind::Absent);
  EXPECT_EQ(files_->exists(at("no/more")), false);
  EXPECT_TRUE(files_->remove_all(at("no")));
}

TEST_P(FilesContract, DirectoriesAreRefusedAsFiles) {
  ASSERT_TRUE(files_->make_dir(at("d")));
  EXPECT_FALSE(files_->open_read(at("d")));
  EXPECT_FALSE(files_->create_write(at("d")));
  ASSERT_TRUE(put("f", ""));
  EXPECT_FALSE(files_->make_dir(at("f")));
  EXPECT_FALSE(files_->rename(at("f"), at("d")));
  EXPECT_FALSE(files_->rename(at("d"), at("f")));
}

/// Of the disk alone: opening it would wait for a writer.
TEST_P(FilesContract, APipeIsRefusedAsAFile) {
  if (GetParam().name != "Posix") return;
  ASSERT_EQ(mkfifo(at("p").c_str(), 0600), 0);
  const auto refused = files_->open_read(at("p"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::BadInput);
  EXPECT_NE(refused.error().message.find("is a pipe"), std::string::npos);
}

TEST_P(FilesContract, TreesAreListedSortedAndRemovedWhole) {
  ASSERT_TRUE(files_->make_dirs(at("t/x/y")));
  ASSERT_TRUE(files_->make_dirs(at("t/x/y")));
  ASSERT_TRUE(put("t/b", "1"));
  ASSERT_TRUE(put("t/a", "1"));
  ASSERT_TRUE(put("t/x/y/z", "1"));
  ASSERT_TRUE(put("tt", "stays"));
  const std::vector<DirEntry> expected = {
      {"a", EntryKind::File}, {"b", EntryKind::File}, {"x", EntryKind::Directory}};
  EXPECT_EQ(files_->list_dir(at("t")), expected);
  EXPECT_FALSE(files_->remove(at("t")));
  EXPECT_TRUE(files_->remove_all(at("t")));
  EXPECT_EQ(files_->exists(at("t")), false);
  EXPECT_EQ(content("tt"), "stays");
}

TEST_P(FilesContract, RenamedDirectoryTakesItsContent) {
  ASSERT_TRUE(files_->make_dirs(at("from/sub")));
  ASSERT_TRUE(put("from/sub/f", "1"));
  ASSERT_TRUE(files_->make_dir(at("empty")));
  ASSERT_TRUE(files_->rename(at("from"), at("empty")));
  EXPECT_EQ(content("empty/sub/f"), "1");
  EXPECT_EQ(files_->exists(at("from")), false);
  ASSERT_TRUE(files_->make_dir(at("other")));
  EXPECT_FALSE(files_->rename(at("other"), at("empty")));
}

TEST_P(FilesContract, ExchangeSwapsDirectories) {
  ASSERT_TRUE(files_->make_dir(at("a")));
  ASSERT_TRUE(files_->make_dir(at("b")));
  ASSERT_TRUE(put("a/f", "in a"));
  ASSERT_TRUE(put("b/g", "in b"));
  const auto swapped = files_->exchange(at("a"), at("b"));
  ASSERT_TRUE(swapped) << swapped.error().to_string();
  if (!*swapped) GTEST_SKIP() << "this file system cannot swap";
  EXPECT_EQ(content("b/f"), "in a");
  EXPECT_EQ(content("a/g"), "in b");
}

TEST_P(FilesContract, WriteAtomicallyReplacesAndLeavesNothingBeside) {
  ASSERT_TRUE(files_->write_atomically(at("s"), "one"));
  ASSERT_TRUE(files_->write_atomically(at("s"), "two"));
  EXPECT_EQ(content("s"), "two");
  EXPECT_EQ(files_->list_dir(root_)->size(), 1u);
}

TEST_P(FilesContract, ReadAllRefusesWhatIsTooLarge) {
  ASSERT_TRUE(put("a", "12345"));
  EXPECT_EQ(files_->read_all(at("a"), 5), "12345");
  const auto refused = files_->read_all(at("a"), 4);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "the file has 5 bytes, at most 4 are expected here");
}

INSTANTIATE_TEST_SUITE_P(
    , FilesContract,
    testing::Values(Kind{"Posix", [] { return std::make_unique<PosixFiles>(); }},
                    Kind{"Memory", [] { return std::make_unique<MemoryFiles>(); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace dsj

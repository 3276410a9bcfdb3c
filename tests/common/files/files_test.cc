// What only one of the implementations has: the disk's own errors, counting, faults, power loss.
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include "common/files/counting_files.h"
#include "common/files/faulty_files.h"
#include "common/files/file_error.h"
#include "common/files/memory_files.h"
#include "common/files/posix_files.h"

namespace dsj {
namespace {

TEST(PathParts, JoinAndParent) {
  EXPECT_EQ(path_join("a/b", "c"), "a/b/c");
  EXPECT_EQ(path_join("a/", "c"), "a/c");
  EXPECT_EQ(path_join("", "c"), "c");
  EXPECT_EQ(path_parent("a/b/c"), "a/b");
  EXPECT_EQ(path_parent("a/b/"), "a");
  EXPECT_EQ(path_parent("c"), ".");
  EXPECT_EQ(path_parent("/c"), "/");
  EXPECT_EQ(path_parent("/"), "/");
}

TEST(PosixFiles, FullDiskSaysHowManyBytesAndWhatToDo) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  PosixFiles files;
  auto file = files.create_write("/dev/full");
  ASSERT_TRUE(file);
  const Status written = (*file)->append(as_bytes("0123456789"));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().kind, ErrorKind::Environment);
  EXPECT_EQ(written.error().where, "/dev/full");
  EXPECT_EQ(written.error().message, "writing 10 bytes at 0: No space left on device");
  EXPECT_NE(written.error().hint.find("free space"), std::string::npos);
}

TEST(FileError, KindSaysWhetherAnotherTryMayHelp) {
  for (const int number : {ENOENT, ENOTDIR})
    EXPECT_EQ(file_error("opening", "/a", number).kind, ErrorKind::BadInput) << number;
  for (const int number : {EMFILE, ENFILE, EINTR, EAGAIN, ENOMEM, ESTALE, ETIMEDOUT})
    EXPECT_EQ(file_error("opening", "/a", number).kind, ErrorKind::Transient) << number;
  for (const int number : {EIO, EACCES, ENOSPC, EROFS})
    EXPECT_EQ(file_error("opening", "/a", number).kind, ErrorKind::Environment) << number;
  EXPECT_EQ(file_error("opening", "/a", EMFILE).to_string(),
            "/a: opening: Too many open files (raise the limit of open files (ulimit -n))");
}

TEST(FileError, DiskFaultsAreToldApart) {
  for (const int number : {EIO, EUCLEAN, EBADMSG, EREMOTEIO, ENODATA, EILSEQ})
    EXPECT_EQ(file_error("reading", "/a", number).cause, Error::Cause::Disk) << number;
  for (const int number : {ENOENT, EACCES, EMFILE, ESTALE, ENOSPC})
    EXPECT_EQ(file_error("reading", "/a", number).cause, Error::Cause::Other) << number;
}

TEST(PosixFiles, LinksAreRemovedNotFollowed) {
  PosixFiles files;
  const std::string root = testing::TempDir() + "dsj_files_links";
  std::filesystem::remove_all(root);
  ASSERT_TRUE(files.make_dirs(root + "/kept"));
  ASSERT_TRUE(files.make_dirs(root + "/tree"));
  ASSERT_TRUE(files.write_synced(root + "/kept/file", "1"));
  std::filesystem::create_directory_symlink(root + "/kept", root + "/tree/link");
  std::filesystem::create_directory_symlink(root + "/kept", root + "/top");
  EXPECT_EQ(files.kind(root + "/top"), EntryKind::Directory);
  EXPECT_TRUE(files.remove_all(root + "/tree"));
  EXPECT_TRUE(files.remove_all(root + "/top"));
  EXPECT_EQ(files.exists(root + "/tree"), false);
  EXPECT_EQ(files.exists(root + "/top"), false);
  EXPECT_EQ(files.read_all(root + "/kept/file"), "1");
  std::filesystem::remove_all(root);
}

TEST(CountingFiles, BytesByPathAndInTotal) {
  MemoryFiles memory;
  CountingFiles files(memory);
  ASSERT_TRUE(files.write_synced("/a", "12345"));
  ASSERT_TRUE(files.write_synced("/b", "123"));
  EXPECT_EQ(files.read_all("/a"), "12345");
  EXPECT_EQ(files.of("/a").bytes_written, 5);
  EXPECT_EQ(files.of("/a").bytes_read, 5);
  EXPECT_EQ(files.of("/a").opens, 2);
  EXPECT_EQ(files.of("/none").opens, 0);
  EXPECT_EQ(files.total().bytes_written, 8);
  EXPECT_EQ(files.total().writes, 2);
  files.reset();
  EXPECT_EQ(files.total().bytes_written, 0);
}

TEST(FaultyFiles, OneFailureThenTheProgramGoesOn) {
  MemoryFiles memory;
  FaultyFiles files(memory, {.at = 1, .dies = false});
  const Status failed = files.write_synced("/a", "1234");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().where, "append /a");
  EXPECT_TRUE(files.write_synced("/a", "1234"));
  EXPECT_EQ(files.operations(), (std::vector<std::string>{"create /a", "append /a", "create /a",
                                                          "append /a", "sync /a", "close /a"}));
}

TEST(FaultyFiles, DeathIsFinalAndTornLeavesHalf) {
  MemoryFiles memory;
  FaultyFiles files(memory, {.at = 1, .torn = true});
  EXPECT_FALSE(files.write_synced("/a", "1234"));
  EXPECT_FALSE(files.write_synced("/b", "1234"));
  EXPECT_FALSE(files.read_all("/a"));
  EXPECT_EQ(memory.read_all("/a"), "12");
  EXPECT_EQ(memory.exists("/b"), false);
}

TEST(FaultyFiles, ReadsFailWhereTheTestSays) {
  MemoryFiles memory;
  ASSERT_TRUE(memory.write_synced("/a", "1234"));
  ASSERT_TRUE(memory.write_synced("/b", "1234"));
  FaultyFiles files(memory, {.reading = [](const std::string& what) -> std::optional<Error> {
                      if (what != "read /a" && what != "open /b" && what != "list /") return {};
                      return file_error(what, what.substr(5), EIO);
                    }});
  auto a = files.open_read("/a");
  ASSERT_TRUE(a);
  EXPECT_EQ((*a)->size(), 4);
  EXPECT_EQ((*a)->read(0, {}).error().message, "read /a: Input/output error");
  EXPECT_FALSE(files.open_read("/b"));
  EXPECT_FALSE(files.list_dir("/"));
  EXPECT_EQ(memory.read_all("/a"), "1234");
}

TEST(MemoryFiles, PowerLossKeepsWhatWasSynced) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    MemoryFiles files;
    ASSERT_TRUE(files.make_dir("/d"));
    ASSERT_TRUE(files.write_atomically("/d/a", "synced"));
    ASSERT_TRUE(files.sync_dir("/"));
    files.power_loss(seed);
    EXPECT_EQ(files.read_all("/d/a"), "synced");
    EXPECT_EQ(files.list_dir("/d")->size(), 1u);
  }
}

TEST(MemoryFiles, PowerLossMayKeepOrLoseWhatWasNot) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    MemoryFiles files;
    auto file = files.create_write("/a");
    ASSERT_TRUE((*file)->append(as_bytes("ab")));
    files.power_loss(seed);
    seen.insert(files.read_all("/a").value_or("absent"));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"absent", "", "a", "ab", std::string(2, '\0')}));
}

TEST(MemoryFiles, RenameWithoutSyncGivesTheOldOrTheNewContent) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    MemoryFiles files;
    ASSERT_TRUE(files.write_atomically("/a", "old"));
    ASSERT_TRUE(files.write_synced("/a.tmp", "new"));
    ASSERT_TRUE(files.rename("/a.tmp", "/a"));
    files.power_loss(seed);
    seen.insert(files.read_all("/a").value_or("absent"));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"old", "new"}));
}

}  // namespace
}  // namespace dsj

// What a reader opens, and how it judges what it cannot read.
#include "engine/checkpoint/reader.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <filesystem>

#include "common/files/counting_files.h"
#include "common/files/faulty_files.h"
#include "common/files/file_error.h"
#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "engine/checkpoint/damage.h"
#include "tests/engine/checkpoint/support.h"

namespace dsj::checkpoint {
namespace {

constexpr char kStep[] = "/out/checkpoints/step-1";

/// Reads what rank `rank` of `world` owns.
Status read_share(const ModelWorld& model, Reader& reader, int rank, int world) {
  for (const Extent& extent : model.extents) {
    const int64_t begin = ModelWorld::border(extent, rank, world);
    const int64_t end = ModelWorld::border(extent, rank + 1, world);
    std::vector<float> out(static_cast<size_t>(end - begin));
    DSJ_TRY_STATUS(reader.read(extent.state, extent.param, begin, out));
  }
  return {};
}

int64_t opens(const CountingFiles& files, int part) {
  return files.of(path_join(kStep, part_json_name(part))).opens +
         files.of(path_join(kStep, part_data_name(part))).opens;
}

TEST(ReaderTest, OpensOnlyThePartsItReads) {
  constexpr int kWorld = 64;
  const ModelWorld model = ModelWorld::make(10'000);
  MemoryFiles memory;
  ASSERT_TRUE(model.save(memory, {.checkpoints_dir = kDir, .step = 1, .world = kWorld}));
  CountingFiles files(memory);
  auto reader = Reader::open(files, kStep);
  ASSERT_TRUE(reader) << reader.error().to_string();
  EXPECT_EQ(files.total().opens, 1) << "the manifest";
  ASSERT_TRUE(read_share(model, *reader, 5, kWorld));
  for (int part = 0; part < kWorld; ++part)
    EXPECT_EQ(opens(files, part), part == 5 ? 2 : 0) << "part " << part;
  files.reset();
  ASSERT_TRUE(read_share(model, *reader, 0, 16));
  for (int part = 0; part < kWorld; ++part)
    EXPECT_EQ(opens(files, part), part < 4 ? 2 : 0) << "part " << part;
}

/// A process may have 1,024 files open by default, and a checkpoint may have more parts.
TEST(ReaderTest, AFewDescriptorsDoForAnyNumberOfParts) {
  constexpr int kWorld = int(Reader::kFilesOpenMax) + 40;
  const ModelWorld model = ModelWorld::make(10'000);
  const std::string root = testing::TempDir() + "dsj_reader_test" + std::to_string(getpid());
  PosixFiles files;
  ASSERT_TRUE(model.save(files, {.checkpoints_dir = root, .step = 1, .world = kWorld}));
  const auto in_use = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(in_use) + Reader::kFilesOpenMax + 8;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  auto reader = Reader::open(files, root + "/step-1");
  const Status read = reader ? read_share(model, *reader, 0, 1) : std::unexpected(reader.error());
  const Status verified = reader ? reader->verify() : Status{};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(read) << read.error().to_string();
  EXPECT_TRUE(verified) << verified.error().to_string();
  std::filesystem::remove_all(root);
}

/// Programs before the manifest named the holders wrote the same version.
TEST(ReaderTest, AManifestWithoutHoldersIsRead) {
  const ModelWorld model = ModelWorld::make(10'000);
  MemoryFiles files;
  ASSERT_TRUE(model.save(files, {.checkpoints_dir = kDir, .step = 1, .world = 3}));
  const std::string path = path_join(kStep, kManifestFile);
  auto manifest = manifest_from_text(*files.read_all(path), path);
  ASSERT_TRUE(manifest);
  EXPECT_EQ(manifest->holders.size(), model.extents.size());
  manifest->holders.clear();
  const std::string text = to_text(*manifest);
  EXPECT_EQ(text.find("holders"), std::string::npos);
  ASSERT_TRUE(files.write_synced(path, text));
  auto reader = Reader::open(files, kStep);
  ASSERT_TRUE(reader) << reader.error().to_string();
  model.expect_whole(*reader, 4);
  EXPECT_TRUE(reader->verify());
}

/// The seal is of the content, not of its spaces and line ends.
TEST(ReaderTest, ASealHoldsInAnotherSpelling) {
  const ModelWorld model = ModelWorld::make(10'000);
  MemoryFiles files;
  ASSERT_TRUE(model.save(files, {.checkpoints_dir = kDir, .step = 1, .world = 2}));
  const std::string path = path_join(kStep, kManifestFile);
  nlohmann::json manifest = nlohmann::json::parse(*files.read_all(path));
  ASSERT_TRUE(files.write_synced(path, manifest.dump(2)));
  auto reader = Reader::open(files, kStep);
  ASSERT_TRUE(reader) << reader.error().to_string();
  model.expect_whole(*reader, 3);
  manifest["body"]["step"] = 2;
  ASSERT_TRUE(files.write_synced(path, manifest.dump(2)));
  EXPECT_TRUE(Reader::open(files, kStep).error().cause == Error::Cause::Damage);
}

TEST(ReaderTest, AManifestThatPointsToTheWrongPartIsDamage) {
  const ModelWorld model = ModelWorld::make(10'000);
  MemoryFiles files;
  ASSERT_TRUE(model.save(files, {.checkpoints_dir = kDir, .step = 1, .world = 2}));
  const std::string path = path_join(kStep, kManifestFile);
  auto manifest = manifest_from_text(*files.read_all(path), path);
  manifest->holders[0] = {{.offset = 0, .length = model.extents[0].elements, .part = 1}};
  ASSERT_TRUE(files.write_synced(path, to_text(*manifest)));
  auto reader = Reader::open(files, kStep);
  const Status read = read_share(model, *reader, 0, 1);
  ASSERT_FALSE(read);
  EXPECT_TRUE(read.error().cause == Error::Cause::Damage);
  EXPECT_EQ(
      read.error().message,
      "element 0 is not in part 1, where the manifest says (read for master of embed.weight)");
  manifest->holders[0][0].part = 2;
  ASSERT_TRUE(files.write_synced(path, to_text(*manifest)));
  EXPECT_TRUE(Reader::open(files, kStep).error().cause == Error::Cause::Damage)
      << "there is no part 2";
}

struct Failing {
  const char* operation;  ///< on a file of rank 1
  int number;
  bool is_damage;
};

class FailingRead : public testing::TestWithParam<Failing> {};

/// Damage is judged by what failed.
TEST_P(FailingRead, IsJudgedByItsReason) {
  const Failing& failing = GetParam();
  const ModelWorld model = ModelWorld::make(10'000);
  MemoryFiles memory;
  ASSERT_TRUE(model.save(memory, {.checkpoints_dir = kDir, .step = 1, .world = 2}));
  FaultyFiles files(memory, {.reading = [&](const std::string& what) -> std::optional<Error> {
                      if (!what.starts_with(failing.operation)) return {};
                      const std::string path = what.substr(what.find('/'));
                      return file_error("opening for reading", path, failing.number);
                    }});
  auto reader = Reader::open(files, kStep);
  const Status read = reader ? read_share(model, *reader, 0, 1) : std::unexpected(reader.error());
  ASSERT_FALSE(read);
  const std::string said = read.error().to_string();
  EXPECT_EQ(read.error().cause == Error::Cause::Damage, failing.is_damage) << said;
  EXPECT_NE(said.find(kStep), std::string::npos) << said;
  EXPECT_NE(said.find(std::strerror(failing.number)), std::string::npos) << said;
  if (failing.is_damage) {
    EXPECT_EQ(read.error().kind, ErrorKind::Environment);
  }
}

INSTANTIATE_TEST_SUITE_P(
    , FailingRead,
    testing::Values(Failing{"read /out/checkpoints/step-1/rank-00001.bin", EIO, true},
                    Failing{"open /out/checkpoints/step-1/rank-00001.bin", EIO, true},
                    Failing{"read /out/checkpoints/step-1/rank-00001.json", EIO, true},
                    Failing{"read /out/checkpoints/step-1/manifest.json", EIO, true},
                    Failing{"open /out/checkpoints/step-1/rank-00001.bin", ENOENT, true},
                    Failing{"open /out/checkpoints/step-1/rank-00001.bin", EMFILE, false},
                    Failing{"open /out/checkpoints/step-1/rank-00001.json", ENFILE, false},
                    Failing{"read /out/checkpoints/step-1/rank-00001.bin", ESTALE, false},
                    Failing{"read /out/checkpoints/step-1/rank-00001.bin", ETIMEDOUT, false},
                    Failing{"open /out/checkpoints/step-1/rank-00001.bin", EACCES, false},
                    Failing{"open /out/checkpoints/step-1/manifest.json", EACCES, false},
                    Failing{"open /out/checkpoints/step-1/manifest.json", EINTR, false}));

}  // namespace
}  // namespace dsj::checkpoint

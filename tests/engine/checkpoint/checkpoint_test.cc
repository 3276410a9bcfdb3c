#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "common/files/counting_files.h"
#include "common/files/faulty_files.h"
#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "engine/checkpoint/damage.h"
#include "engine/checkpoint/fence.h"
#include "tests/engine/checkpoint/support.h"

namespace dsj::checkpoint {
namespace {

TEST(CheckpointOnDisk, WrittenByTwoReadByAnyWorldSize) {
  const std::string root = testing::TempDir() + "dsj_checkpoint_test";
  std::filesystem::remove_all(root);
  const std::string dir = root + "/out/checkpoints";
  const ModelWorld model = ModelWorld::make();
  PosixFiles files;
  const auto saved = model.save(files, {.checkpoints_dir = dir, .step = 5, .world = 2});
  ASSERT_TRUE(saved) << saved.error().to_string();
  EXPECT_EQ(saved->path, dir + "/step-5");
  EXPECT_TRUE(saved->warnings.empty());
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(saved->path)) {
    bytes += int64_t(entry.file_size());
  }
  EXPECT_EQ(saved->bytes, bytes);
  for (const int world : {1, 2, 3, 4, 7}) {
    auto reader = Reader::open(files, saved->path);
    ASSERT_TRUE(reader) << reader.error().to_string();
    EXPECT_EQ(reader->world(), 2);
    model.expect_whole(*reader, world);
  }
  auto found = newest(files, dir);
  ASSERT_TRUE(found && found->reader);
  EXPECT_EQ(found->reader->step(), 5);
  EXPECT_TRUE(found->reader->verify());
  std::filesystem::remove_all(root);
}

class Checkpoint : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(files_.make_dirs("/out/checkpoints")); }
  Published save(int64_t step, int64_t attempt = 1, std::optional<int64_t> limit = std::nullopt,
                 int world = 2) {
    auto saved = model_.save(files_, options(step, attempt, world), limit);
    EXPECT_TRUE(saved) << saved.error().to_string();
    if (!saved) return {};
    EXPECT_EQ(saved->warnings, std::vector<std::string>{});
    return *saved;
  }
  static WriteOptions options(int64_t step, int64_t attempt = 1, int world = 2) {
    return {.checkpoints_dir = kDir, .step = step, .attempt = attempt, .world = world};
  }
  std::vector<std::string> names() {
    std::vector<std::string> names;
    const auto entries = files_.list_dir(kDir);
    for (const DirEntry& entry : *entries) names.push_back(entry.name);
    return names;
  }
  /// Flips one bit.
  void damage(const std::string& path, int64_t at) {
    std::string content = *files_.read_all(path);
    content[size_t(at < 0 ? int64_t(content.size()) + at : at)] ^= 4;
    ASSERT_TRUE(files_.write_synced(path, content));
  }
  using Names = std::vector<std::string>;

  MemoryFiles files_;
  const ModelWorld model_ = ModelWorld::make(1000);
};

TEST_F(Checkpoint, NoneIsNoError) {
  for (const char* dir : {kDir, "/nowhere"}) {
    const auto found = newest(files_, dir);
    ASSERT_TRUE(found);
    EXPECT_FALSE(found->reader);
    EXPECT_TRUE(found->warnings.empty());
  }
}

TEST_F(Checkpoint, EveryFloatBitPatternSurvives) {
  const std::vector<float> values = {NAN, -NAN, INFINITY, -0.0f, 1e-45f, 3.4e38f};
  const std::vector<Piece> pieces = {{"exp_avg", "w", 0, values}};
  ASSERT_TRUE(write_rank(files_, options(1, 1, 1), pieces));
  ASSERT_TRUE(publish(files_, options(1, 1, 1), {.extents = {{"exp_avg", "w", 6}}}));
  auto reader = Reader::open(files_, "/out/checkpoints/step-1");
  std::vector<float> found(6);
  ASSERT_TRUE(reader->read("exp_avg", "w", 0, found));
  EXPECT_EQ(std::memcmp(found.data(), values.data(), 24), 0);
}

TEST_F(Checkpoint, RunStateComesBackAsItWas) {
  const nlohmann::json state = {
      {"position", 9007199254740993},      {"lr", 0.1 + 0.2},    {"tiny", 5e-324},
      {"rng", {0, 18446744073709551615u}}, {"text", "\u00e9\n"}, {"none", nullptr}};
  ASSERT_TRUE(write_rank(files_, options(1, 1, 1), {}));
  ASSERT_TRUE(publish(files_, options(1, 1, 1), {.run_state = state}));
  EXPECT_EQ(Reader::open(files_, "/out/checkpoints/step-1")->run_state(), state);
  const auto refused = publish(files_, options(1, 1, 1), {.run_state = {{"loss", NAN}}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("not finite"), std::string::npos);
}

TEST_F(Checkpoint, CoverageIsChecked) {
  const std::vector<float> data(10);
  const auto message = [&](std::vector<Piece> pieces) {
    EXPECT_TRUE(write_rank(files_, options(1, 1, 1), pieces));
    const auto saved = publish(files_, options(1, 1, 1), {.extents = {{"master", "w", 10}}});
    return saved ? "published" : saved.error().message;
  };
  const std::span<const float> all = data;
  EXPECT_EQ(message({{"master", "w", 0, all.first(4)}}),
            "master of w: 4 of 10 elements are written");
  EXPECT_EQ(message({{"master", "w", 4, all.first(6)}}),
            "master of w: elements from 0 on are missing");
  EXPECT_EQ(message({{"master", "w", 0, all.first(4)}, {"master", "w", 3, all.first(7)}}),
            "master of w: elements from 3 on are written twice");
  EXPECT_EQ(message({{"master", "w", 0, all}, {"master", "v", 0, all}}),
            "master of v is not expected");
  EXPECT_EQ(message({}), "master of w: 0 of 10 elements are written");
  EXPECT_EQ(names(), Names{".staging-step-1-attempt-1"});
  EXPECT_EQ(message({{"master", "w", 6, all.first(4)}, {"master", "w", 0, all.first(6)}}),
            "published");
  EXPECT_EQ(names(), Names{"step-1"});
}

TEST_F(Checkpoint, MissingPartOfARankIsNotPublished) {
  ASSERT_TRUE(model_.write(files_, options(1)));
  const auto saved = publish(files_, options(1), model_.publication(1));
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().kind, ErrorKind::Transient);
  EXPECT_TRUE(saved.error().where.ends_with("rank-00001.json")) << saved.error().where;
  EXPECT_FALSE(newest(files_, kDir)->reader);
}

TEST_F(Checkpoint, PartOfAnotherWorldSizeIsNotPublished) {
  for (int rank = 0; rank < 3; ++rank) {
    WriteOptions three = options(1, 1, 3);
    three.rank = rank;
    ASSERT_TRUE(model_.write(files_, three));
  }
  const auto saved = publish(files_, options(1), model_.publication(1));
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().message, "this part is of step 1, attempt 1, rank 0 of 3");
}

TEST_F(Checkpoint, OlderAttemptMayNotPublish) {
  ASSERT_TRUE(files_.write_atomically("/out/checkpoints/attempt", "2\n"));
  const auto late = model_.save(files_, options(1, 1));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, ErrorKind::Transient);
  EXPECT_EQ(late.error().message,
            "attempt 2 owns the checkpoints, attempt 1 may not publish any more");
  EXPECT_FALSE(newest(files_, kDir)->reader);
  EXPECT_EQ(clear_leftovers(files_, kDir, 2), Names{});
  save(1, 2);
  EXPECT_EQ(newest(files_, kDir)->reader->attempt(), 2);
  EXPECT_EQ(names(), (Names{"attempt", "step-1"}));
  ASSERT_TRUE(files_.write_atomically("/out/checkpoints/attempt", "two"));
  EXPECT_EQ(model_.save(files_, options(3, 2)).error().message,
            "a number is expected, found \"two\"");
}

TEST_F(Checkpoint, LimitKeepsTheNewest) {
  for (const int64_t step : {1, 2, 3}) save(step);
  EXPECT_EQ(names(), (Names{"step-1", "step-2", "step-3"}));
  save(10, 1, 2);
  EXPECT_EQ(names(), (Names{"step-10", "step-3"}));
  save(11, 1, 1);
  EXPECT_EQ(names(), Names{"step-11"});
  save(12, 1, 0);
  EXPECT_EQ(names(), (Names{"step-11", "step-12"}));
}

TEST_F(Checkpoint, RunThatWentBackToAnOlderCheckpointKeepsItsOwn) {
  save(100);
  save(200);
  save(150, 2, 1);
  EXPECT_EQ(names(), Names{"step-150"});
  save(100, 3);
  EXPECT_EQ(newest(files_, kDir)->reader->step(), 100);
}

/// As docs/cluster.md advises: a checkpoint of a long-lived job goes into a new output directory,
/// whose attempts begin at 1.
TEST_F(Checkpoint, ACopyFromAnotherDirectoryIsOlderThanWhatIsSavedAfterIt) {
  for (const bool has_serial : {true, false}) {
    MemoryFiles files;
    ASSERT_TRUE(model_.save(files, options(100, 9)));
    if (!has_serial) {
      const std::string path = std::string(kDir) + "/step-100/manifest.json";
      auto manifest = manifest_from_text(*files.read_all(path), path);
      manifest->serial = 0;
      ASSERT_TRUE(files.write_synced(path, to_text(*manifest)));
    }
    for (const int64_t step : {110, 120, 130}) {
      ASSERT_TRUE(model_.save(files, options(step, 1), 1));
      EXPECT_EQ(newest(files, kDir)->reader->step(), step);
      EXPECT_EQ(files.list_dir(kDir)->size(), 1u) << "the copy goes first";
    }
  }
}

/// Older programs wrote no serials: attempt and step decide among those, and any that has one is newer.
TEST_F(Checkpoint, ManifestsWithoutASerialAreInTheOrderOfTheirAttempts) {
  const auto forget_serial = [&](int64_t step) {
    const std::string path = "/out/checkpoints/step-" + std::to_string(step) + "/manifest.json";
    auto manifest = manifest_from_text(*files_.read_all(path), path);
    manifest->serial = 0;
    ASSERT_TRUE(files_.write_synced(path, to_text(*manifest)));
  };
  save(200, 1);
  save(150, 2);
  save(100, 1);
  for (const int64_t step : {100, 150, 200}) forget_serial(step);
  const auto order = [&] {
    std::vector<int64_t> steps;
    const auto candidates = list_candidates(files_, kDir);
    for (const auto& candidate : *candidates) steps.push_back(candidate.step);
    return steps;
  };
  EXPECT_EQ(order(), (std::vector<int64_t>{150, 200, 100}));
  save(120, 1);
  EXPECT_EQ(order(), (std::vector<int64_t>{120, 150, 200, 100}));
}

TEST_F(Checkpoint, TheNewestAttemptIsThatOfTheFileOrOfAManifest) {
  EXPECT_EQ(newest_attempt(files_, "/none/yet"), 0);
  save(1, 4);
  EXPECT_EQ(newest_attempt(files_, kDir), 4);
  ASSERT_TRUE(files_.write_atomically("/out/checkpoints/attempt", "7\n"));
  EXPECT_EQ(newest_attempt(files_, kDir), 7);
  EXPECT_EQ(owner_of(files_, kDir), 7);
}

/// On a disk, for the file system in memory has no links.
TEST(CheckpointOnDisk, ALinkIsFollowedAndWhatItNamesStays) {
  namespace fs = std::filesystem;
  const std::string root = testing::TempDir() + "dsj_links_" + std::to_string(getpid());
  fs::remove_all(root);
  PosixFiles files;
  const ModelWorld model = ModelWorld::make(100);
  const auto save = [&](const std::string& dir, int64_t step, std::optional<int64_t> limit) {
    ASSERT_TRUE(model.save(files, {.checkpoints_dir = dir, .step = step}, limit));
  };
  save(root + "/elsewhere", 5, {});
  fs::create_directories(root + "/checkpoints");
  fs::create_directory_symlink("../elsewhere/step-5", root + "/checkpoints/step-5");
  auto found = newest(files, root + "/checkpoints");
  ASSERT_TRUE(found && found->reader);
  EXPECT_EQ(found->reader->step(), 5);
  save(root + "/checkpoints", 5, {});  // takes the link's place
  save(root + "/checkpoints", 6, {});
  fs::remove_all(root + "/checkpoints/step-5");
  fs::create_directory_symlink("../elsewhere/step-5", root + "/checkpoints/step-5");
  save(root + "/checkpoints", 7, 1);  // removes it
  EXPECT_FALSE(fs::is_symlink(root + "/checkpoints/step-5"));
  EXPECT_TRUE(Reader::open(files, root + "/elsewhere/step-5")->verify());

  fs::create_directory_symlink("../gone/step-9", root + "/checkpoints/step-9");
  const auto broken = newest(files, root + "/checkpoints");
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().message, "the link's target does not exist");
  EXPECT_EQ(broken.error().where, root + "/checkpoints/step-9");
  fs::remove_all(root);
}

TEST_F(Checkpoint, SameStepAgainReplaces) {
  save(7);
  save(7, 2, std::nullopt, 3);
  EXPECT_EQ(names(), Names{"step-7"});
  auto found = newest(files_, kDir);
  EXPECT_EQ(found->reader->attempt(), 2);
  EXPECT_EQ(found->reader->world(), 3);
  model_.expect_whole(*found->reader, 2);
}

TEST_F(Checkpoint, LeftoversOfDeadAttemptsGoBeforeTheNextSave) {
  save(1);
  ASSERT_TRUE(model_.write(files_, options(3, 1)));
  ASSERT_TRUE(model_.write(files_, options(4, 2)));
  ASSERT_TRUE(model_.write(files_, options(5, 3)));  // of a directory that was copied here
  ASSERT_TRUE(files_.make_dirs("/out/checkpoints/.trash-step-1"));
  ASSERT_TRUE(files_.write_synced("/out/checkpoints/.trash-step-1/rank-00000.bin", "x"));
  ASSERT_TRUE(files_.make_dirs("/out/checkpoints/not-ours"));
  EXPECT_EQ(clear_leftovers(files_, kDir, 2), Names{});
  EXPECT_EQ(names(), (Names{"not-ours", "step-1"}));
  EXPECT_EQ(clear_leftovers(files_, "/none/yet", 1), Names{});
}

TEST_F(Checkpoint, AnAttemptThatIsOverClearsNothing) {
  ASSERT_TRUE(model_.write(files_, options(3, 2)));
  ASSERT_TRUE(files_.write_atomically("/out/checkpoints/attempt", "2\n"));
  EXPECT_EQ(clear_leftovers(files_, kDir, 1), Names{});
  EXPECT_EQ(names(), (Names{".staging-step-3-attempt-2", "attempt"}));
  EXPECT_EQ(clear_leftovers(files_, kDir, 2), Names{});
  EXPECT_EQ(names(), Names{"attempt"});
}

/// Each operation of the clearing fails once: the attempt begins nevertheless.
TEST_F(Checkpoint, WhatCannotBeClearedIsAWarning) {
  const auto prepare = [&](Files& files) {
    ASSERT_TRUE(model_.save(files, options(1)));
    ASSERT_TRUE(model_.write(files, options(3, 1)));
  };
  MemoryFiles plain;
  prepare(plain);
  FaultyFiles counting(plain, {});
  EXPECT_EQ(clear_leftovers(counting, kDir, 2), Names{});
  ASSERT_GT(counting.operations().size(), 4u);
  for (size_t at = 0; at < counting.operations().size(); ++at) {
    SCOPED_TRACE(counting.operations()[at]);
    MemoryFiles files;
    prepare(files);
    FaultyFiles faulty(files, {.at = int64_t(at), .dies = false});
    EXPECT_EQ(clear_leftovers(faulty, kDir, 2).size(), 1u);
    EXPECT_EQ(newest(files, kDir)->reader->step(), 1);
    EXPECT_EQ(clear_leftovers(files, kDir, 3), Names{}) << "the next attempt tries again";
    EXPECT_EQ(files.list_dir(kDir)->size(), 1u);
  }
}

TEST_F(Checkpoint, FilesThatNoSaveWroteAreKept) {
  for (const int64_t step : {1, 2}) save(step);
  ASSERT_TRUE(files_.write_synced("/out/checkpoints/step-1/notes.txt", "mine"));
  ASSERT_TRUE(files_.make_dirs("/out/checkpoints/step-0"));
  ASSERT_TRUE(
      files_.write_synced("/out/checkpoints/step-0/model.safetensors", "another program's"));
  const auto saved = model_.save(files_, options(3), 1);
  ASSERT_TRUE(saved);
  ASSERT_EQ(saved->warnings.size(), 1u);
  EXPECT_NE(saved->warnings[0].find("notes.txt"), std::string::npos) << saved->warnings[0];
  EXPECT_EQ(names(), (Names{"kept-step-1", "step-0", "step-3"}));
  EXPECT_EQ(files_.read_all("/out/checkpoints/kept-step-1/notes.txt"), "mine");
  EXPECT_EQ(files_.list_dir("/out/checkpoints/kept-step-1")->size(), 1u);
  EXPECT_EQ(files_.read_all("/out/checkpoints/step-0/model.safetensors"), "another program's");
}

TEST_F(Checkpoint, FullDiskInPruningIsAWarning) {
  save(1);
  ASSERT_TRUE(files_.write_synced("/out/checkpoints/.trash-step-1", "a file in the way"));
  const auto saved = model_.save(files_, options(2), 1);
  ASSERT_TRUE(saved) << saved.error().to_string();
  EXPECT_EQ(newest(files_, kDir)->reader->step(), 2);
}

TEST_F(Checkpoint, BrokenNewestIsPassedOverAloud) {
  save(1);
  save(2);
  damage("/out/checkpoints/step-2/manifest.json", -10);
  auto found = newest(files_, kDir);
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_EQ(found->reader->step(), 1);
  ASSERT_EQ(found->warnings.size(), 1u);
  EXPECT_NE(found->warnings[0].find("step-2"), std::string::npos);
  EXPECT_NE(found->warnings[0].find("manifest.json"), std::string::npos);
  save(3, 1, 1);  // a broken one older than everything kept goes with the limit
  EXPECT_EQ(names(), Names{"step-3"});
}

TEST_F(Checkpoint, OnlyBrokenOnesIsAnErrorThatNamesTheFile) {
  save(1);
  ASSERT_TRUE(files_.remove("/out/checkpoints/step-1/rank-00001.bin"));
  const auto found = newest(files_, kDir);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().kind, ErrorKind::Environment);
  EXPECT_EQ(found.error().where, "/out/checkpoints/step-1/rank-00001.bin");
  EXPECT_NE(found.error().hint.find("no complete checkpoint"), std::string::npos);
}

/// Died between "aside" and "in place", then the run went on: the checkpoint set aside has its name
/// again.
TEST_F(Checkpoint, SetAsideCheckpointIsPutBack) {
  save(10);
  ASSERT_TRUE(files_.rename("/out/checkpoints/step-10", "/out/checkpoints/.old-step-10-attempt-2"));
  auto found = newest(files_, kDir);
  ASSERT_TRUE(found && found->reader);
  model_.expect_whole(*found->reader);
  EXPECT_EQ(clear_leftovers(files_, kDir, 3), Names{});
  save(20, 3);
  EXPECT_EQ(names(), (Names{"step-10", "step-20"}));
  EXPECT_TRUE(Reader::open(files_, "/out/checkpoints/step-10")->verify());
}

/// The rank failed after its data was written anew, before its description was.
TEST_F(Checkpoint, DescriptionOfAnEarlierTryIsNotPublished) {
  ASSERT_TRUE(model_.write(files_, options(1, 1, 1)));
  FaultyFiles faulty(files_, {.at = 4, .dies = false});
  ASSERT_FALSE(model_.write(faulty, options(1, 1, 1)));
  EXPECT_TRUE(faulty.operations()[4].starts_with("close")) << faulty.operations()[4];
  const auto saved = publish(files_, options(1, 1, 1), model_.publication(1));
  ASSERT_FALSE(saved);
  EXPECT_TRUE(saved.error().where.ends_with("rank-00000.json"));
}

/// The checkpoints directory itself is new: its name must be durable too.
TEST_F(Checkpoint, FirstSaveSurvivesPowerLoss) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    MemoryFiles files;
    ASSERT_TRUE(files.make_dir("/out"));
    ASSERT_TRUE(files.sync_dir("/"));
    ASSERT_TRUE(model_.save(files, options(1)));
    files.power_loss(seed);
    auto found = newest(files, kDir);
    ASSERT_TRUE(found && found->reader) << seed;
    EXPECT_TRUE(found->reader->verify());
  }
}

/// A bit anywhere in any file: the reader says which file, it never returns a wrong number.
TEST_F(Checkpoint, EveryDamagedByteIsFound) {
  save(1);
  const std::string step = "/out/checkpoints/step-1/";
  for (const char* name : {"manifest.json", "rank-00000.json", "rank-00001.json", "rank-00000.bin",
                           "rank-00001.bin"}) {
    const std::string whole = *files_.read_all(step + name);
    for (size_t at = 0; at < whole.size(); at += 1 + whole.size() / 211) {
      damage(step + name, int64_t(at));
      auto reader = Reader::open(files_, step);
      const Status state = reader ? reader->verify() : std::unexpected(reader.error());
      ASSERT_FALSE(state) << name << " byte " << at;
      EXPECT_TRUE(state.error().cause == Error::Cause::Damage);
      EXPECT_NE(state.error().where.find(name), std::string::npos) << state.error().to_string();
      ASSERT_TRUE(files_.write_synced(step + name, whole));
    }
    for (const size_t length : {size_t(0), size_t(1), whole.size() / 2, whole.size() - 1}) {
      ASSERT_TRUE(files_.write_synced(step + name, whole.substr(0, length)));
      auto reader = Reader::open(files_, step);
      const Status state = reader ? reader->verify() : std::unexpected(reader.error());
      ASSERT_FALSE(state) << name << " cut to " << length;
      EXPECT_TRUE(state.error().cause == Error::Cause::Damage);
      EXPECT_NE(state.error().where.find(name), std::string::npos);
      ASSERT_TRUE(files_.write_synced(step + name, whole));
    }
  }
  EXPECT_TRUE(Reader::open(files_, step)->verify());
}

TEST_F(Checkpoint, DamageIsFoundByAReadOfTheBlockOnly) {
  const ModelWorld big = ModelWorld::make(2'000'000);
  ASSERT_TRUE(big.save(files_, options(1, 1, 1)));
  damage("/out/checkpoints/step-1/rank-00000.bin", 5 * kBlockBytes + 17);
  auto reader = Reader::open(files_, "/out/checkpoints/step-1");
  ASSERT_TRUE(reader);
  std::vector<float> out(1000);
  EXPECT_TRUE(reader->read("master", "embed.weight", 0, out));
  EXPECT_TRUE(reader->read("master", "embed.weight", 6 * kBlockBytes / 4, out));
  const Status read = reader->read("master", "embed.weight", 5 * kBlockBytes / 4 + 200'000, out);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().where, "/out/checkpoints/step-1/rank-00000.bin");
  EXPECT_EQ(read.error().message,
            "block 5, the 1048576 bytes from 5242880 on, does not match its checksum (read for "
            "master of embed.weight)");
}

TEST_F(Checkpoint, WhatIsSetAsideIsNeitherFoundNorPruned) {
  for (const int64_t step : {1, 2}) save(step);
  const SetAside first = set_aside(files_, kDir, {"step-2"});
  EXPECT_EQ(first.names, Names{"damaged-step-2"});
  EXPECT_EQ(first.warnings, Names{});
  EXPECT_EQ(newest(files_, kDir)->reader->step(), 1);
  save(2);
  EXPECT_EQ(set_aside(files_, kDir, {"step-2"}).names, Names{"damaged-step-2-2"})
      << "the same step again";
  save(3, 1, 1);
  EXPECT_EQ(names(), (Names{"damaged-step-2", "damaged-step-2-2", "step-3"}));
  const SetAside failed = set_aside(files_, kDir, {"step-9"});
  EXPECT_EQ(failed.names, Names{""});
  EXPECT_EQ(failed.warnings.size(), 1u) << "what fails is told";
}

TEST_F(Checkpoint, ReadsOfWhatIsNotThereAreRefused) {
  save(1);
  auto reader = Reader::open(files_, "/out/checkpoints/step-1");
  std::vector<float> out(8);
  EXPECT_EQ(reader->read("master", "nope", 0, out).error().message,
            "the checkpoint has no master of nope");
  const Status past = reader->read("master", "layer.0.bias", 1, out);
  ASSERT_FALSE(past);
  EXPECT_EQ(past.error().kind, ErrorKind::BadInput);
  EXPECT_NE(past.error().message.find("has 7 elements, the model asks for [1, 9)"),
            std::string::npos);
  EXPECT_FALSE(reader->read("master", "layer.0.bias", -1, out));
  EXPECT_FALSE(reader->read("master", "layer.0.bias", INT64_MAX, out));
  EXPECT_TRUE(reader->read("master", "layer.0.bias", 7, {}));
  EXPECT_EQ(reader->elements("master", "layer.0.bias"), 7);
  EXPECT_EQ(Reader::open(files_, "/out/checkpoints/step-9").error().kind, ErrorKind::BadInput);
}

/// 2 → 4 ranks: a rank reads its quarter, the JSON files and at most a few blocks of edges.
TEST_F(Checkpoint, RankReadsItsShareOnly) {
  const ModelWorld big = ModelWorld::make(4'000'000);
  ASSERT_TRUE(big.save(files_, options(1, 1, 2)));
  CountingFiles counting(files_);
  auto reader = Reader::open(counting, "/out/checkpoints/step-1");
  const int64_t json_bytes = counting.total().bytes_read;
  int64_t wanted = 0, edges = 0;
  for (const Extent& extent : big.extents) {
    const int64_t begin = ModelWorld::border(extent, 1, 4), end = ModelWorld::border(extent, 2, 4);
    std::vector<float> out(size_t(end - begin));
    ASSERT_TRUE(reader->read(extent.state, extent.param, begin, out));
    wanted += (end - begin) * 4;
    edges += extent.param == "embed.weight" ? 2 : 1;
  }
  const int64_t data_bytes = counting.total().bytes_read - json_bytes;
  EXPECT_GE(data_bytes, wanted);
  EXPECT_LE(data_bytes, wanted + edges * kBlockBytes);
  EXPECT_LT(json_bytes, 20'000);
}

/// Neighbouring small tensors share a block: it is read once.
TEST_F(Checkpoint, SmallTensorsOfABlockCostOneRead) {
  std::vector<std::vector<float>> values(1000, std::vector<float>(50));
  std::vector<Piece> pieces;
  Publication publication;
  for (size_t i = 0; i < values.size(); ++i) {
    pieces.push_back({"master", "p" + std::to_string(i), 0, values[i]});
    publication.extents.push_back({"master", pieces.back().param, 50});
  }
  ASSERT_TRUE(write_rank(files_, options(1, 1, 1), pieces));
  ASSERT_TRUE(publish(files_, options(1, 1, 1), publication));
  CountingFiles counting(files_);
  auto reader = Reader::open(counting, "/out/checkpoints/step-1");
  counting.reset();
  std::vector<float> out(50);
  for (const Piece& piece : pieces) ASSERT_TRUE(reader->read("master", piece.param, 0, out));
  const FileCounts data = counting.of("/out/checkpoints/step-1/rank-00000.bin");
  EXPECT_EQ(data.bytes_read, 200'000);
  EXPECT_EQ(data.reads, 1);
}

TEST_F(Checkpoint, WritesAreLarge) {
  const ModelWorld big = ModelWorld::make(4'000'000);
  CountingFiles counting(files_);
  ASSERT_TRUE(big.write(counting, options(1, 1, 1)));
  const FileCounts data = counting.of("/out/checkpoints/.staging-step-1-attempt-1/rank-00000.bin");
  EXPECT_EQ(data.bytes_written, 3 * (4'000'000 + 7 + 4096) * 4);
  EXPECT_LE(data.writes, data.bytes_written / (8 * kBlockBytes) + 6);  // one more per piece
}

TEST(CheckpointLayout, DirectoryNames) {
  EXPECT_EQ(parse_dir_name("step-12")->step, 12);
  EXPECT_EQ(parse_dir_name(staging_name(12, 3))->attempt, 3);
  EXPECT_EQ(parse_dir_name(replaced_name(12, 3))->kind, DirName::Kind::Replaced);
  EXPECT_EQ(parse_dir_name(".trash-whatever")->kind, DirName::Kind::Trash);
  for (const char* name : {"step-", "step-x", "step-1x", "step--1", "step-1-attempt-1", "attempt",
                           ".staging-step-1", "step-99999999999999999999", ""}) {
    EXPECT_FALSE(parse_dir_name(name)) << name;
  }
}

TEST(CheckpointLayout, LaterVersionIsRefusedAsSuch) {
  const std::string body = R"({"format":"dsj-checkpoint","version":2})";
  std::array<char, 17> seal;
  std::snprintf(seal.data(), seal.size(), "%016llx",
                static_cast<unsigned long long>(checksum(body)));
  const auto manifest = manifest_from_text(
      "{\"xxh3\":\"" + std::string(seal.data()) + "\",\"body\":" + body + "}", "m");
  ASSERT_FALSE(manifest);
  EXPECT_EQ(manifest.error().message, "version 2 of the checkpoint format, 1 is read here");
}

}  // namespace
}  // namespace dsj::checkpoint

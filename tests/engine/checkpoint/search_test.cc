#include "engine/checkpoint/search.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "common/files/faulty_files.h"
#include "common/files/file_error.h"
#include "common/files/memory_files.h"
#include "engine/checkpoint/damage.h"
#include "tests/engine/checkpoint/support.h"

namespace dsj::checkpoint {
namespace {

class SearchTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(files_.make_dirs(kDir)); }
  void save(int64_t step, std::optional<int64_t> limit = std::nullopt) {
    save(files_, step, limit);
  }
  void save(Files& files, int64_t step, std::optional<int64_t> limit = std::nullopt) {
    const auto saved =
        model_.save(files, {.checkpoints_dir = kDir, .step = step, .world = 2}, limit);
    ASSERT_TRUE(saved) << saved.error().to_string();
  }
  /// Makes the manifest of a step one of a later version of the format.
  void make_later(int64_t step) {
    const std::string path = manifest(step);
    std::string text = *files_.read_all(path);
    const size_t body = text.find("\"body\":") + 7;
    std::string inside = text.substr(body, text.size() - body - 1);
    const std::string now = "\"version\":1";
    inside.replace(inside.find(now), now.size(), "\"version\":2");
    std::array<char, 17> seal;
    std::snprintf(seal.data(), seal.size(), "%016llx",
                  static_cast<unsigned long long>(checksum(inside)));
    ASSERT_TRUE(files_.write_synced(
        path, "{\"xxh3\":\"" + std::string(seal.data()) + "\",\"body\":" + inside + "}"));
  }
  static std::string manifest(int64_t step) {
    return path_join(path_join(kDir, step_name(step)), kManifestFile);
  }
  /// The files, but reading the manifest of `step` fails with errno `number`.
  Fault unreadable(int64_t step, int number) const {
    return {.reading = [=](const std::string& what) -> std::optional<Error> {
      if (what != "open " + manifest(step)) return {};
      return file_error("opening for reading", manifest(step), number);
    }};
  }
  std::vector<std::string> names() {
    std::vector<std::string> names;
    const auto entries = files_.list_dir(kDir);
    for (const DirEntry& entry : *entries) names.push_back(entry.name);
    return names;
  }

  MemoryFiles files_;
  const ModelWorld model_ = ModelWorld::make(1000);
};

TEST_F(SearchTest, KeepsWhatIsWantedAndWhatCannotBeRead) {
  for (const int64_t step : {1, 2, 3}) save(step);
  ASSERT_TRUE(files_.write_synced(manifest(2), "{"));
  auto search = Search::begin(files_, kDir);
  ASSERT_TRUE(search);
  int asked = 0;
  search->keep([&](const nlohmann::json&) { return ++asked == 2; });
  EXPECT_EQ(asked, 2) << "not of the one that cannot be read";
  EXPECT_TRUE(search->any_readable());
  search->settle();
  ASSERT_EQ(search->count(), 2);
  EXPECT_EQ(search->open(0), 0);
  EXPECT_EQ(search->reader().step(), 3);
  search->keep([](const nlohmann::json&) { return false; });
  EXPECT_EQ(search->count(), 1);
  EXPECT_FALSE(search->any_readable());
}

TEST_F(SearchTest, GoesFromTheNewestToTheOldest) {
  for (const int64_t step : {1, 2, 3}) save(step);
  auto search = Search::begin(files_, kDir);
  ASSERT_TRUE(search);
  search->settle();
  ASSERT_EQ(search->count(), 3);
  EXPECT_EQ(search->open(0), 0);
  EXPECT_EQ(search->reader().step(), 3);
  EXPECT_TRUE(search->passed_over().empty());
  EXPECT_FALSE(search->problem(0));
  search->reject(0, damaged("flipped", "a file").error());
  EXPECT_EQ(search->open(1), 1);
  search->reject(1, damaged("short", "b file").error());
  EXPECT_EQ(search->open(2), 2);
  EXPECT_EQ(search->reader().step(), 1);
  const auto passed = search->passed_over();
  ASSERT_EQ(passed.size(), 2u);
  EXPECT_EQ(passed[0].name, "step-3");
  EXPECT_EQ(passed[0].step, 3);
  EXPECT_EQ(passed[0].problem.message, "flipped");
  EXPECT_EQ(passed[0].problem.where, "a file");
  EXPECT_EQ(search->open(3), 3);
  EXPECT_EQ(search->nothing_left().kind, ErrorKind::Environment);
  EXPECT_EQ(search->nothing_left().message, "flipped");
}

TEST_F(SearchTest, SearchesOfOneDirectoryHaveOneFingerprint) {
  save(1);
  const auto first = Search::begin(files_, kDir)->fingerprint();
  EXPECT_EQ(Search::begin(files_, kDir)->fingerprint(), first);
  save(2);
  const auto second = Search::begin(files_, kDir)->fingerprint();
  EXPECT_NE(second, first);
  FaultyFiles faulty(files_, unreadable(2, EIO));
  EXPECT_EQ(Search::begin(faulty, kDir)->fingerprint(), second)
      << "also for a rank that cannot read a manifest";
}

/// One rank cannot read the newest manifest: told to the others, all try the same list.
TEST_F(SearchTest, WhatOneRankSawIsToldToTheOthers) {
  for (const int64_t step : {1, 2}) save(step);
  FaultyFiles faulty(files_, unreadable(2, EIO));
  auto blind = Search::begin(faulty, kDir), seeing = Search::begin(files_, kDir);
  ASSERT_TRUE(blind->problem(1));
  EXPECT_TRUE(blind->problem(1)->cause == Error::Cause::Damage);
  seeing->reject(1, *blind->problem(1));
  for (auto* search : {&*blind, &*seeing}) {
    search->settle();
    EXPECT_EQ(search->open(0), 0);
    EXPECT_EQ(search->reader().step(), 1);
    ASSERT_EQ(search->passed_over().size(), 1u);
    EXPECT_EQ(search->passed_over()[0].name, "step-2");
  }
}

/// The newest manifest cannot be read now, but it may be sound: going on from an older one would
/// throw work away.
TEST_F(SearchTest, AReasonThatMayPassEndsTheSearch) {
  for (const int64_t step : {1, 2}) save(step);
  for (const int number : {EMFILE, ENFILE, EINTR, ESTALE, ETIMEDOUT, EACCES}) {
    FaultyFiles faulty(files_, unreadable(2, number));
    const auto found = newest(faulty, kDir);
    ASSERT_FALSE(found) << std::strerror(number);
    EXPECT_EQ(found.error().where, manifest(2));
    EXPECT_EQ(found.error().message, std::string("opening for reading: ") + std::strerror(number));
    EXPECT_EQ(found.error().kind, number == EACCES ? ErrorKind::Environment : ErrorKind::Transient);
  }
  FaultyFiles faulty(files_, unreadable(1, EMFILE));
  const auto found = newest(faulty, kDir);
  ASSERT_TRUE(found) << "an older one does not matter";
  EXPECT_EQ(found->reader->step(), 2);
}

TEST_F(SearchTest, ALaterVersionIsRefusedWithWhatToDo) {
  for (const int64_t step : {1, 2}) save(step);
  make_later(2);
  const auto found = newest(files_, kDir);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().where, manifest(2));
  EXPECT_EQ(found.error().message, "version 2 of the checkpoint format, 1 is read here");
  EXPECT_NE(found.error().hint.find("resumeFromCheckpoint"), std::string::npos);
  EXPECT_FALSE(found.error().cause == Error::Cause::Damage);
}

TEST_F(SearchTest, WhatCannotBeJudgedIsNotPruned) {
  for (const int64_t step : {1, 2, 3, 4}) save(step);
  make_later(1);
  FaultyFiles faulty(files_, unreadable(2, ESTALE));
  save(faulty, 5, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-1", "step-2", "step-4", "step-5"}));
}

}  // namespace
}  // namespace dsj::checkpoint

// Death at every write point of a save: what newest() then loads is the previous or the new
// checkpoint, with exactly its contents, and the next save works.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "common/files/faulty_files.h"
#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "tests/engine/checkpoint/support.h"

namespace dsj::checkpoint {
namespace {

/// What is saved while the process dies.
struct Scenario {
  const char* name;
  int64_t first_step, first_attempt;  ///< there before
  int64_t step, attempt;              ///< being saved
  bool can_exchange;
  bool behind = false;  ///< by background_save.h

  Result<Published> save(Files& files, const WriteOptions& options) const;
};

constexpr Scenario kScenarios[] = {
    {"next_step", 10, 1, 20, 1, true},
    {"same_step_swapped", 10, 1, 10, 2, true},
    {"same_step_renamed_aside", 10, 1, 10, 2, false},
    {"next_step_behind", 10, 1, 20, 1, true, true},
    {"same_step_swapped_behind", 10, 1, 10, 2, true, true},
    {"same_step_renamed_aside_behind", 10, 1, 10, 2, false, true},
};

const ModelWorld& model() {
  static const ModelWorld world = ModelWorld::make(3000);
  return world;
}

Result<Published> Scenario::save(Files& files, const WriteOptions& options) const {
  return behind ? model().save_behind(files, options, 1) : model().save(files, options, 1);
}

WriteOptions options(const std::string& dir, int64_t step, int64_t attempt) {
  return {.checkpoints_dir = dir, .step = step, .attempt = attempt, .world = 2};
}

/// The state before: an older checkpoint (pruned by the save under test), the previous one, and
/// what a dead attempt left.
Status prepare(Files& files, const std::string& dir, const Scenario& scenario) {
  DSJ_TRY_STATUS(model().save(files, options(dir, 5, 1)));
  DSJ_TRY_STATUS(model().save(files, options(dir, scenario.first_step, scenario.first_attempt)));
  DSJ_TRY_STATUS(model().write(files, options(dir, 7, 0)));
  return files.write_atomically(path_join(dir, "attempt"), std::to_string(scenario.attempt));
}

Status save_under_test(Files& files, const std::string& dir, const Scenario& scenario) {
  DSJ_TRY_STATUS(scenario.save(files, options(dir, scenario.step, scenario.attempt)));
  return {};
}

/// 0: the previous checkpoint, 1: the new one; anything else is a test failure.
int which_is_loaded(Files& files, const std::string& dir, const Scenario& scenario) {
  auto found = newest(files, dir);
  EXPECT_TRUE(found) << found.error().to_string();
  if (!found || !found->reader) {
    ADD_FAILURE() << "no checkpoint is left";
    return -1;
  }
  EXPECT_EQ(found->warnings, std::vector<std::string>{});
  model().expect_whole(*found->reader, 3);
  EXPECT_TRUE(found->reader->verify());
  const std::pair loaded(found->reader->step(), found->reader->attempt());
  if (loaded == std::pair(scenario.step, scenario.attempt)) return 1;
  EXPECT_EQ(loaded, std::pair(scenario.first_step, scenario.first_attempt));
  return 0;
}

/// The attempt after the death cleans up and saves: one checkpoint, nothing else.
void expect_next_save_cleans_up(Files& files, const std::string& dir) {
  EXPECT_EQ(clear_leftovers(files, dir, 3), std::vector<std::string>{});
  const auto saved = model().save(files, options(dir, 30, 3), 1);
  ASSERT_TRUE(saved) << saved.error().to_string();
  EXPECT_EQ(saved->warnings, std::vector<std::string>{});
  const std::vector<DirEntry> expected = {{"attempt", EntryKind::File},
                                          {"step-30", EntryKind::Directory}};
  EXPECT_EQ(files.list_dir(dir), expected);
}

std::vector<std::string> operations_of(const Scenario& scenario) {
  MemoryFiles memory;
  EXPECT_TRUE(prepare(memory, "/out/checkpoints", scenario));
  FaultyFiles counting(memory, {.can_exchange = scenario.can_exchange});
  EXPECT_TRUE(save_under_test(counting, "/out/checkpoints", scenario));
  return counting.operations();
}

/// A file system in memory where there is one: a killed process loses nothing by it, and the test
/// does not wait for thousands of fsyncs.
std::string scratch_dir() {
  return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : testing::TempDir();
}

class Death : public testing::TestWithParam<Scenario> {};

/// A real process on a real file system, killed with SIGKILL inside the save.
TEST_P(Death, KillAtEveryWriteLeavesThePreviousOrTheNew) {
  const Scenario& scenario = GetParam();
  const auto operations = operations_of(scenario);
  const std::string root =
      scratch_dir() + "dsj_checkpoint_death_" + scenario.name + std::to_string(getpid());
  const std::string dir = root + "/checkpoints";
  int seen[2] = {0, 0};
  for (int64_t at = 0; at <= int64_t(operations.size()); ++at) {
    const std::string where =
        at < int64_t(operations.size()) ? operations[size_t(at)] : "after the save";
    SCOPED_TRACE(where);
    for (const bool torn : {false, true}) {
      if (torn && !where.starts_with("append")) continue;
      std::filesystem::remove_all(root);
      PosixFiles files;
      ASSERT_TRUE(prepare(files, dir, scenario));
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        FaultyFiles faulty(files, {.at = at,
                                   .torn = torn,
                                   .die = [] { ::kill(::getpid(), SIGKILL); },
                                   .can_exchange = scenario.can_exchange});
        _exit(save_under_test(faulty, dir, scenario) ? 0 : 1);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      if (at < int64_t(operations.size())) {
        ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
      } else {
        ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
      }
      const int loaded = which_is_loaded(files, dir, scenario);
      ASSERT_GE(loaded, 0);
      ++seen[loaded];
      expect_next_save_cleans_up(files, dir);
      if (HasFatalFailure()) return;
    }
  }
  std::filesystem::remove_all(root);
  std::printf("%s: %zu write points; killed there, the previous was loaded %d times, the new %d\n",
              scenario.name, operations.size(), seen[0], seen[1]);
  EXPECT_GT(seen[0], 20);
  EXPECT_GT(seen[1], 1);
}

/// The machine loses power instead: unsynced bytes and names may be lost, in any amount.
TEST_P(Death, PowerLossAtEveryWriteLeavesThePreviousOrTheNew) {
  const Scenario& scenario = GetParam();
  const std::string dir = "/out/checkpoints";
  const auto operations = operations_of(scenario);
  int seen[2] = {0, 0};
  for (int64_t at = 0; at <= int64_t(operations.size()); ++at) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      SCOPED_TRACE(std::to_string(at) + " seed " + std::to_string(seed));
      MemoryFiles files;
      ASSERT_TRUE(files.make_dir("/out"));
      ASSERT_TRUE(files.sync_dir("/"));
      ASSERT_TRUE(prepare(files, dir, scenario));
      FaultyFiles faulty(files, {.at = at, .torn = true, .can_exchange = scenario.can_exchange});
      const bool saved = save_under_test(faulty, dir, scenario).has_value();
      files.power_loss(seed);
      const int loaded = which_is_loaded(files, dir, scenario);
      ASSERT_GE(loaded, 0);
      // Once publish() has returned, power loss may not take it back.
      if (saved) {
        ASSERT_EQ(loaded, 1);
      }
      ++seen[loaded];
      expect_next_save_cleans_up(files, dir);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(seen[0], 150);
  EXPECT_GT(seen[1], 10);
}

/// The disk is full, or a write fails, once: the save says so, and nothing published is harmed.
TEST_P(Death, OneFailedWriteIsReportedAndHarmsNothing) {
  const Scenario& scenario = GetParam();
  const std::string dir = "/out/checkpoints";
  const auto operations = operations_of(scenario);
  int failed = 0, warned = 0;
  for (int64_t at = 0; at < int64_t(operations.size()); ++at) {
    SCOPED_TRACE(operations[size_t(at)]);
    MemoryFiles files;
    ASSERT_TRUE(prepare(files, dir, scenario));
    FaultyFiles faulty(files, {.at = at, .dies = false, .can_exchange = scenario.can_exchange});
    const auto saved = scenario.save(faulty, options(dir, scenario.step, scenario.attempt));
    if (!saved) {
      EXPECT_EQ(saved.error().message, "no space left (injected)");
      ++failed;
    } else {
      EXPECT_EQ(saved->warnings.size(), 1u);
      ++warned;
    }
    ASSERT_EQ(saved ? 1 : which_is_loaded(files, dir, scenario),
              which_is_loaded(files, dir, scenario));
    expect_next_save_cleans_up(files, dir);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(failed, 10);
  EXPECT_GT(warned, 10);
}

INSTANTIATE_TEST_SUITE_P(, Death, testing::ValuesIn(kScenarios),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace dsj::checkpoint

// The exit codes in the documentation equal the program's.
#include "cli/exit_codes.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "agent/gang/session_state.h"
#include "job/contract.h"
#include "test_paths.h"

namespace dsj::cli {
namespace {

TEST(ExitCodes, TheClusterPageListsEachWithItsMeaning) {
  std::ostringstream page;
  page << std::ifstream(std::string(DSJ_SOURCE_DIR) + "/docs/cluster.md").rdbuf();
  for (const auto& [code, meaning] : kExitMeanings) {
    const std::string row = "| " + std::to_string(code) + " | " + meaning + " |\n";
    EXPECT_NE(page.str().find(row), std::string::npos) << "docs/cluster.md lacks: " << row;
  }
}

TEST(ExitCodes, CodesSharedWithRanksEqualTheContracts) {
  EXPECT_EQ(int{kExitOk}, int{contract::kExitDone});
  EXPECT_EQ(int{kExitUsage}, int{contract::kExitBadInput});
  EXPECT_EQ(int{kExitSurroundings}, int{contract::kExitEnvironment});
  EXPECT_EQ(int{kExitNotFinite}, int{contract::kExitNotFinite});
  EXPECT_EQ(int{kExitNodes}, int{agent::kExitNodesMissing});
  EXPECT_EQ(int{kExitStopped}, int{contract::kExitInterrupted});
}

/// Each code has one meaning for all verbs, so that scripts can rely on it.
TEST(ExitCodes, EachHasOneMeaning) {
  std::set<int> seen;
  for (const auto& [code, meaning] : kExitMeanings)
    EXPECT_TRUE(seen.insert(code).second) << code << " stands twice";
  for (const int of_a_rank : {contract::kExitPeerLost, contract::kExitPreempted})
    EXPECT_FALSE(seen.contains(of_a_rank)) << "dsj never exits with " << of_a_rank;
}

}  // namespace
}  // namespace dsj::cli

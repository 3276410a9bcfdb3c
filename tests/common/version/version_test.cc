#include "common/version/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace dsj {
namespace {

using testing::MatchesRegex;

const Version kBuilt{.release = "1.2.3",
                     .commit = "0123456789abcdef0123456789abcdef01234567",
                     .describe = "v1.2.3-4-g0123456789ab-dirty",
                     .libtorch = "2.11.0"};

TEST(Version, TheTextHasReleaseCommitAndLibtorch) {
  EXPECT_EQ(version_text("dsj", kBuilt),
            "dsj 1.2.3 (v1.2.3-4-g0123456789ab-dirty, libtorch 2.11.0)");
}

TEST(Version, OutsideAGitCheckoutItIsTheReleaseAlone) {
  const Version source{.release = "1.2.3", .commit = "", .describe = "v1.2.3", .libtorch = ""};
  EXPECT_EQ(version_text("dsj-operator", source), "dsj-operator 1.2.3");
  const auto json = nlohmann::json::parse(version_json("dsj-operator", source));
  EXPECT_EQ(json, nlohmann::json({{"program", "dsj-operator"},
                                  {"version", "1.2.3"},
                                  {"commit", nullptr},
                                  {"describe", "v1.2.3"},
                                  {"libtorch", nullptr}}));
}

TEST(Version, JsonHasEveryField) {
  EXPECT_EQ(nlohmann::json::parse(version_json("dsj", kBuilt)),
            nlohmann::json({{"program", "dsj"},
                            {"version", kBuilt.release},
                            {"commit", kBuilt.commit},
                            {"describe", kBuilt.describe},
                            {"libtorch", kBuilt.libtorch}}));
}

TEST(Version, ThisBuildKnowsItsRelease) {
  EXPECT_THAT(version().release, MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(version().describe, MatchesRegex("v[0-9].*"));
  EXPECT_THAT(version().commit, MatchesRegex("([0-9a-f]{40})?"));
  EXPECT_THAT(version().libtorch, MatchesRegex("([0-9]+\\.[0-9]+\\.[0-9]+)?"));
}

int answered(std::vector<std::string> args, std::string& out) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto code = answer_version("dsj", args);
  testing::internal::GetCapturedStderr();
  out = testing::internal::GetCapturedStdout();
  return code.value_or(-1);
}

TEST(Version, AnswersInTheFormatThatIsAskedFor) {
  std::string out;
  EXPECT_EQ(answered({"--version"}, out), 0);
  EXPECT_EQ(out, version_text("dsj", version()) + "\n");
  EXPECT_EQ(answered({"--version", "-o", "json"}, out), 0);
  EXPECT_EQ(out, version_json("dsj", version()) + "\n");
}

TEST(Version, RefusesOtherFormatsAndLeavesOtherArgumentsAlone) {
  std::string out;
  EXPECT_EQ(answered({"--version", "-o", "yaml"}, out), 2);
  EXPECT_EQ(answered({"--version", "now"}, out), 2);
  EXPECT_EQ(answered({"run", "--version"}, out), -1);
  EXPECT_EQ(answered({}, out), -1);
}

}  // namespace
}  // namespace dsj

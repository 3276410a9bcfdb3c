// The section activation_checkpointing: what acts, and what is warned of.
#include <gtest/gtest.h>

#include "job/dsconfig/resolve.h"

namespace dsj::dsconfig {
namespace {

Resolution checkpointed(const std::string& section, bool gradient_checkpointing) {
  TrainingArgs args;
  args.gradient_checkpointing = gradient_checkpointing;
  return resolve(nlohmann::json::parse(R"({"activation_checkpointing": )" + section + "}"), args,
                 {});
}

std::vector<std::string> warned_of_section(const Resolution& resolution) {
  std::vector<std::string> paths;
  for (const Finding& finding : resolution.findings)
    if (finding.path.starts_with("activation_checkpointing")) {
      EXPECT_EQ(finding.severity, Finding::Severity::Warning) << finding.path;
      EXPECT_FALSE(finding.hint.empty() && finding.message.empty());
      paths.push_back(finding.path);
    }
  return paths;
}

TEST(ActivationCheckpointing, InputsLeaveWhereTheyAreKept) {
  const std::string section = R"({"cpu_checkpointing": true})";
  const Resolution kept = checkpointed(section, true), none = checkpointed(section, false);
  EXPECT_TRUE(kept.config.cpu_checkpointing);
  EXPECT_TRUE(warned_of_section(kept).empty());
  EXPECT_EQ(warned_of_section(none),
            std::vector<std::string>{"activation_checkpointing.cpu_checkpointing"});
  EXPECT_TRUE(warned_of_section(checkpointed(R"({"cpu_checkpointing": false})", false)).empty());
}

TEST(ActivationCheckpointing, OtherKeysAreWarnedOfUnlessTheyAreOff) {
  EXPECT_EQ(
      warned_of_section(checkpointed(R"({"partition_activations": true, "number_checkpoints": 4,
                                "contiguous_memory_optimization": true, "profile": true,
                                "synchronize_checkpoint_boundary": true})",
                                     true))
          .size(),
      5u);
  EXPECT_TRUE(
      warned_of_section(checkpointed(R"({"partition_activations": false, "number_checkpoints": null,
                                  "contiguous_memory_optimization": false, "profile": false,
                                  "synchronize_checkpoint_boundary": false})",
                                     true))
          .empty());
}

}  // namespace
}  // namespace dsj::dsconfig

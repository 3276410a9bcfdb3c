#include "cli/run/resume_command.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dsj::cli {
namespace {

std::string command(const std::vector<std::string>& words,
                    const std::optional<std::string>& from = {}) {
  return resume_command(words, from);
}

TEST(ResumeCommandTest, IsTheCommandQuotedForAShell) {
  EXPECT_EQ(command({"job.yaml", "--output", "/out"}), "dsj run job.yaml --output /out");
  EXPECT_EQ(command({"my job.yaml", "", "it's"}), "dsj run 'my job.yaml' '' 'it'\\''s'");
  EXPECT_EQ(command({"--resume_from_checkpoint", "true"}, "true"),
            "dsj run --resume_from_checkpoint true");
}

TEST(ResumeCommandTest, TheNewestCheckpointReplacesANamedOne) {
  const std::string wanted = "dsj run --nproc_per_node=2 --resume_from_checkpoint=true --seed 3";
  EXPECT_EQ(command({"--nproc_per_node=2", "--resume_from_checkpoint", "/x/step-2", "--seed", "3"},
                    "/x/step-2"),
            wanted);
  EXPECT_EQ(
      command({"--nproc_per_node=2", "--resume_from_checkpoint=false", "--seed", "3"}, "false"),
      wanted);
  EXPECT_EQ(command({"job.yaml"}, "/x/step-2"),
            "dsj run job.yaml --set spec.training.resumeFromCheckpoint=true");
}

TEST(ResumeCommandTest, ARunThatHasOverwrittenAnotherDoesNotOverwriteItself) {
  const std::vector<std::string> switched = {"--seed", "3", "--overwrite_output_dir", "--bf16"};
  EXPECT_EQ(resume_command(switched, {}, true), "dsj run --seed 3 --bf16");
  const std::vector<std::string> valued = {"--overwrite_output_dir", "True", "--seed", "3"};
  EXPECT_EQ(resume_command(valued, {}, true), "dsj run --seed 3");
  const std::vector<std::string> manifest = {"job.yaml"};
  EXPECT_EQ(resume_command(manifest, {}, true),
            "dsj run job.yaml --set spec.training.overwriteOutputDir=false");
}

}  // namespace
}  // namespace dsj::cli

#include "cli/resume_command.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dsj::cli {
namespace {

std::string command(const std::vector<std::string>& words,
                    const std::optional<std::string>& from = {}) {
  return resume_command(words, from);
}

TEST(ResumeCommandTest, IsTheCommandAsOneTypesIt) {
  EXPECT_EQ(command({"job.yaml", "--output", "/out"}), "dsj run job.yaml --output /out");
  EXPECT_EQ(command({"my job.yaml", "", "it's"}), "dsj run 'my job.yaml' '' 'it'\\''s'");
  EXPECT_EQ(command({"--resume_from_checkpoint", "true"}, "true"),
            "dsj run --resume_from_checkpoint true");
}

TEST(ResumeCommandTest, ANamedCheckpointIsNotWhereItGoesOn) {
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

}  // namespace
}  // namespace dsj::cli

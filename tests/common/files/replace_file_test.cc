#include "common/files/replace_file.h"

#include <gtest/gtest.h>

#include "common/files/memory_files.h"

namespace dsj {
namespace {

TEST(ReplaceFile, ShowsTheOldContentOrTheNew) {
  MemoryFiles files;
  ASSERT_TRUE(replace_file(files, "job.json", "one"));
  EXPECT_EQ(files.read_all("job.json").value(), "one");
  ASSERT_TRUE(replace_file(files, "job.json", "two"));
  EXPECT_EQ(files.read_all("job.json").value(), "two");
  EXPECT_FALSE(files.exists("job.json.tmp").value());
}

TEST(ReplaceFile, SaysWhatItCannotWrite) {
  MemoryFiles files;
  const Status status = replace_file(files, "no/such/job.json", "one");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().to_string().find("no/such/job.json"), std::string::npos);
}

}  // namespace
}  // namespace dsj

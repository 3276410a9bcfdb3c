// Files of the monitors, byte for byte where that is fixed. `make oracle` (observe) reads real ones
// with TensorBoard's own reader and Python's csv.
#include "engine/observe/monitor.h"

#include <gtest/gtest.h>

#include "common/files/memory_files.h"

namespace dsj::observe {
namespace {

std::string text_of(Files& files, const std::string& path) {
  const auto text = files.read_all(path);
  EXPECT_TRUE(text) << path << ": " << text.error().to_string();
  return text.value_or("");
}

std::string only_file(Files& files, const std::string& directory) {
  const auto entries = files.list_dir(directory);
  EXPECT_TRUE(entries && entries->size() == 1);
  return path_join(directory, entries->front().name);
}

TEST(Tfevents, CastagnoliIsTheStandards) {  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
}

TEST(Tfevents, FrameIsLengthSumMessageSum) {
  const std::string frame = tf_record("abc");
  ASSERT_EQ(frame.size(), 8u + 4 + 3 + 4);
  EXPECT_EQ(frame.substr(0, 8), std::string("\3\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(frame.substr(12, 3), "abc");
}

TEST(Tfevents, EventHasTimeStepTagAndValue) {
  const Scalar scalar{"a/b", 1.5, 300};
  // wall_time 2.0, step 300, summary { value { tag "a/b", simple_value 1.5 } }
  EXPECT_EQ(scalars_event(2.0, 300, std::span(&scalar, 1)), std::string("\x09\0\0\0\0\0\0\0\x40"
                                                                        "\x10\xac\x02"
                                                                        "\x2a\x0c\x0a\x0a\x0a\x03"
                                                                        "a/b\x15\0\0\xc0\x3f",
                                                                        9 + 3 + 2 + 2 + 5 + 5));
}

TEST(Tensorboard, FileGrowsByFrames) {
  MemoryFiles files;
  const dsconfig::MonitorConfig config{true, "out/tb", "job"};
  auto monitor = open_tensorboard(files, config, 0, [] { return 7.0; });
  ASSERT_TRUE(monitor) << monitor.error().to_string();
  const std::string path = only_file(files, "out/tb/job");
  EXPECT_NE(path.find("/events.out.tfevents.7."), std::string::npos) << path;
  const std::string begin = tf_record(version_event(7.0));
  EXPECT_EQ(text_of(files, path), begin);
  const Scalar scalars[] = {{"loss", 2, 8}, {"lr", 3, 16}, {"scale", 4, 16}};
  ASSERT_TRUE((*monitor)->write(scalars));
  EXPECT_EQ(text_of(files, path), begin + tf_record(scalars_event(7.0, 8, {scalars, 1})) +
                                      tf_record(scalars_event(7.0, 16, {scalars + 1, 2})));
}

TEST(Tensorboard, RunThatGoesOnSaysFromWhere) {
  MemoryFiles files;
  auto monitor = open_tensorboard(files, {true, "", "job"}, 24, [] { return 7.0; });
  ASSERT_TRUE(monitor);
  EXPECT_EQ(text_of(files, only_file(files, "job")),
            tf_record(version_event(7.0)) + tf_record(restart_event(7.0, 24)));
}

TEST(CsvMonitor, OneFilePerTag) {
  MemoryFiles files;
  auto monitor = open_csv(files, {true, "out", "job"}, 0);
  ASSERT_TRUE(monitor);
  for (int64_t x : {8, 16}) {
    const Scalar scalars[] = {{"Train/Samples/lr", 1e-5 * double(x), x}, {"a b", 1.0 / 3, x}};
    ASSERT_TRUE((*monitor)->write(scalars));
  }
  EXPECT_EQ(text_of(files, "out/job/Train_Samples_lr.csv"), "step,lr\r\n8,8e-05\r\n16,0.00016\r\n");
  EXPECT_EQ(text_of(files, "out/job/a_b.csv"),
            "step,a b\r\n8,0.3333333333333333\r\n16,0.3333333333333333\r\n");
}

TEST(CsvMonitor, RunThatGoesOnRepeatsNoRow) {
  MemoryFiles files;
  for (const int64_t from : {0, 16}) {
    auto monitor = open_csv(files, {true, "", "job"}, from);
    ASSERT_TRUE(monitor);
    for (int64_t x = from; x < 32; x += 8) {
      const Scalar scalar{"lr", from == 0 ? 1.0 : 2.0, x};
      ASSERT_TRUE((*monitor)->write({&scalar, 1}));
    }
  }
  EXPECT_EQ(text_of(files, "job/lr.csv"), "step,lr\r\n0,1\r\n8,1\r\n16,2\r\n24,2\r\n");
}

}  // namespace
}  // namespace dsj::observe

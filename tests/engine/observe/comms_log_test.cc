#include "engine/observe/comms_log.h"

#include <gtest/gtest.h>

namespace dsj::observe {
namespace {

TEST(CommsLog, BandwidthsFollowDeepSpeedsFormulas) {
  // 1 MB in 1 ms is 8 Gbit/s.
  const auto of = [](const char* operation) { return bandwidth(operation, 1'000'000, 1.0, 4); };
  EXPECT_DOUBLE_EQ(of("all_gather").algorithm, 32);
  EXPECT_DOUBLE_EQ(of("all_gather").bus, 24);
  EXPECT_DOUBLE_EQ(of("reduce_scatter").algorithm, 8);
  EXPECT_DOUBLE_EQ(of("reduce_scatter").bus, 6);
  EXPECT_DOUBLE_EQ(of("all_reduce").algorithm, 16);
  EXPECT_DOUBLE_EQ(of("all_reduce").bus, 12);
  EXPECT_DOUBLE_EQ(of("broadcast").bus, 8);
  EXPECT_EQ(bandwidth("all_reduce", 8, 0.0, 4).bus, 0) << "too short for the clock";
}

TEST(CommsLog, TableHasOneRowPerOperationAndSize) {
  CommsLog log({.enabled = true}, 2);
  EXPECT_EQ(log.table(), "");
  for (int call = 0; call < 3; ++call) {
    EXPECT_FALSE(log.add({"all_gather", "parameters", 2048, 0.5}));
  }
  log.add({"all_gather", "parameters", 100, 1.0});
  log.add({"all_reduce", "control", 32, 2.0});
  const std::string table = log.table();
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 1 + 2 + 3) << table;
  EXPECT_NE(table.find("2.00 KB         3         1.50                0.50"), std::string::npos)
      << table;
  EXPECT_EQ(table.find("parameters"), std::string::npos);
}

TEST(CommsLog, ProfOpsCountWithoutProfAll) {
  dsconfig::CommsLoggerConfig config{
      .enabled = true, .prof_all = false, .prof_ops = {"all_gather_into_tensor"}};
  CommsLog log(config, 2);
  log.add({"all_reduce", "", 32, 2.0});
  EXPECT_EQ(log.table(), "");
  log.add({"all_gather", "", 32, 2.0});
  EXPECT_NE(log.table(), "");
}

TEST(CommsLog, VerboseTellsEachCallAndDebugWhatItIsFor) {
  CommsLog log({.enabled = true, .verbose = true, .debug = true}, 2);
  const auto line = log.add({"all_reduce", "gradients, layer 3", 1'000'000, 1.0});
  ASSERT_TRUE(line);
  EXPECT_EQ(*line,
            "comm op: all_reduce | gradients, layer 3 | time (ms): 1.00 | msg size: 976.56 KB | "
            "algbw (Gbps): 16.00 | busbw (Gbps): 8.00");
  EXPECT_NE(log.table().find("all_reduce | gradients, layer 3\n"), std::string::npos);
}

}  // namespace
}  // namespace dsj::observe

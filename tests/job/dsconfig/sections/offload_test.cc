// offload_optimizer, offload_param and aio: what reaches the engine, what goes with what, what is
// refused.
#include <gtest/gtest.h>

#include "job/dsconfig/resolve.h"
#include "tests/job/dsconfig/said.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using Severity = Finding::Severity;

Resolution with_zero(const json& zero, const json& more = json::object()) {
  json config = {{"train_micro_batch_size_per_gpu", 1}, {"zero_optimization", zero}};
  config.update(more);
  return resolve_alone(config);
}

TEST(OffloadKeys, EachValueReachesTheResolvedConfig) {
  struct Reading {
    const char* section;
    const char* name;
    json value;
  };
  const std::vector<Reading> readings = {{"offload_optimizer", "device", "nvme"},
                                         {"offload_optimizer", "nvme_path", "/fast"},
                                         {"offload_optimizer", "buffer_count", 9},
                                         {"offload_optimizer", "pipeline_read", true},
                                         {"offload_optimizer", "pipeline_write", true},
                                         {"offload_optimizer", "ratio", 0.25},
                                         {"offload_optimizer", "sub_group_size", 777},
                                         {"offload_param", "device", "nvme"},
                                         {"offload_param", "nvme_path", "/fast2"},
                                         {"offload_param", "buffer_count", 3},
                                         {"offload_param", "buffer_size", 12345},
                                         {"offload_param", "max_in_cpu", 54321},
                                         {"aio", "block_size", 65536},
                                         {"aio", "queue_depth", 5},
                                         {"aio", "intra_op_parallelism", 3},
                                         {"aio", "thread_count", 4},
                                         {"aio", "single_submit", true},
                                         {"aio", "overlap_events", false}};
  const json base = {{"stage", 3},
                     {"offload_optimizer", {{"device", "nvme"}, {"nvme_path", "/a"}}},
                     {"offload_param", {{"device", "nvme"}, {"nvme_path", "/b"}}}};
  const json before = to_json(with_zero(base).config.offload);
  for (const auto& [section, name, value] : readings) {
    json zero = base, more = json::object();
    if (std::string(name) == "sub_group_size") {
      zero[name] = value;
    } else if (std::string(section) == "aio") {
      more[section][name] = value;
    } else {
      zero[section][name] = value;
    }
    const Resolution resolution = with_zero(zero, more);
    EXPECT_TRUE(lines_said(resolution, Severity::Error).empty()) << name;
    EXPECT_TRUE(resolution.runnable()) << name;
    const std::string shown = std::string(name) == "intra_op_parallelism" ? "thread_count" : name;
    EXPECT_EQ(to_json(resolution.config.offload)[section][shown], value) << section << "." << name;
    if (std::string(name) != "device") {
      EXPECT_NE(before[section][shown], value) << name;
    }
  }
  EXPECT_TRUE(to_json(with_zero({{"stage", 3}}).config.offload).empty());
}

TEST(OffloadKeys, OldNamesAreReadWithAWarning) {
  const Resolution old =
      with_zero({{"stage", 3}, {"cpu_offload", true}, {"cpu_offload_params", true}});
  EXPECT_EQ(old.config.offload.optimizer.device, OffloadDevice::Cpu);
  EXPECT_EQ(old.config.offload.param.device, OffloadDevice::Cpu);
  EXPECT_EQ(lines_said(old, Severity::Warning).size(), 2u);
  EXPECT_TRUE(old.runnable());
  const Resolution both =
      with_zero({{"stage", 2}, {"cpu_offload", true}, {"offload_optimizer", {{"device", "cpu"}}}});
  EXPECT_EQ(lines_said(both, Severity::Error).size(), 1u);
}

TEST(OffloadKeys, StagesThatItDoesNotActOnAreSaid) {
  const Resolution zero = with_zero({{"stage", 0}, {"offload_optimizer", {{"device", "cpu"}}}});
  EXPECT_EQ(zero.config.offload.optimizer.device, OffloadDevice::None);
  ASSERT_EQ(lines_said(zero, Severity::Warning).size(), 1u);
  const Resolution two = with_zero({{"stage", 2}, {"offload_param", {{"device", "cpu"}}}});
  EXPECT_EQ(two.config.offload.param.device, OffloadDevice::None);
  ASSERT_EQ(lines_said(two, Severity::Warning).size(), 1u);
}

TEST(OffloadKeys, WhatCannotBeIsRefusedWithItsKey) {
  const auto nvme = [](json more) {
    json section = {{"device", "nvme"}, {"nvme_path", "/a"}};
    section.update(more);
    return section;
  };
  const std::vector<std::tuple<json, json, const char*>> cases = {
      {{{"stage", 2}, {"offload_optimizer", {{"device", "nvme"}}}},
       json::object(),
       "zero_optimization.offload_optimizer.nvme_path"},
      {{{"stage", 3}, {"offload_param", {{"device", "nvme"}}}},
       json::object(),
       "zero_optimization.offload_param.nvme_path"},
      {{{"stage", 2}, {"offload_optimizer", {{"device", "cpu"}, {"ratio", 0.5}}}},
       json::object(),
       "zero_optimization.offload_optimizer.ratio"},
      {{{"stage", 2}, {"offload_optimizer", nvme({{"buffer_count", 3}})}},
       json::object(),
       "zero_optimization.offload_optimizer.buffer_count"},
      {{{"stage", 3}, {"offload_param", nvme({{"buffer_size", 0}})}},
       json::object(),
       "zero_optimization.offload_param.buffer_size"},
      {{{"stage", 3}},
       {{"aio", {{"thread_count", 2}, {"intra_op_parallelism", 3}}}},
       "aio.intra_op_parallelism"},
      {{{"stage", 3}}, {{"aio", {{"queue_depth", 0}}}}, "aio.queue_depth"}};
  for (const auto& [zero, more, path] : cases) {
    const auto lines = lines_said(with_zero(zero, more), Severity::Error);
    ASSERT_EQ(lines.size(), 1u) << path;
    EXPECT_TRUE(lines[0].starts_with(path)) << lines[0];
  }
  const Resolution gds = with_zero({{"stage", 3}}, {{"aio", {{"use_gds", true}}}});
  EXPECT_EQ(lines_said(gds, Severity::Unsupported).size(), 1u);
  const Resolution super = with_zero(
      {{"stage", 3}, {"offload_optimizer", {{"device", "cpu"}, {"super_offload", true}}}});
  EXPECT_EQ(lines_said(super, Severity::Unsupported).size(), 1u);
}

}  // namespace
}  // namespace dsj::dsconfig

// The GPUs that `dsj plan --device` knows, with one row of data each. docs/reports/roofline.md
// names the source of each column. Plain data.
// Tested by: tests/job/roofline/roofline_test.cc
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace dsj::roofline {

struct Gpu {
  const char* name;    ///< as --device takes it
  const char* shown;   ///< as the manufacturer writes it
  int64_t memory;      ///< bytes that its driver reports
  double flops;        ///< per second: bf16 or fp16 products with fp32 sums, dense, datasheet
  double bandwidth;    ///< bytes per second of its memory, datasheet
  double link;         ///< bytes per second and direction to GPUs in the same machine, datasheet
  double host_link;    ///< bytes per second and direction to host memory, datasheet
  double network;      ///< bytes per second and direction to other machines, per GPU; assumed
  double host_memory;  ///< bytes per second of host memory, per GPU; assumed
  // The shares of these rates that large operations reach.
  double product_share, attention_share, bandwidth_share, link_share;
};

/// The minimum time from one launch to the next, in seconds.
inline constexpr double kLaunch = 3e-6;
/// Seconds that a collective takes in addition to its transfer time.
inline constexpr double kCollective = 20e-6;
/// Bytes of a GPU's memory that CUDA, its libraries and the allocator's fragmentation take.
inline constexpr int64_t kOwnMemory = int64_t{1536} << 20;

std::span<const Gpu> gpus();
/// nullptr if the table lacks it.
const Gpu* find_gpu(std::string_view name);

}  // namespace dsj::roofline

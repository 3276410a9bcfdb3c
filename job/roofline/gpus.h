// The GPUs that `dsj plan --device` knows: one row of facts each. docs/reports/roofline.md says where each
// column comes from. Plain data.
// Tested by: tests/job/roofline/roofline_test.cc
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace dsj::roofline {

struct Gpu {
  const char* name;    ///< as --device takes it
  const char* shown;   ///< as its maker writes it
  int64_t memory;      ///< bytes that its driver shows
  double flops;        ///< per second: bf16 or fp16 products with fp32 sums, dense, datasheet
  double bandwidth;    ///< bytes per second of its memory, datasheet
  double link;         ///< bytes per second and direction to GPUs of its machine, datasheet
  double host_link;    ///< bytes per second and direction to host memory, datasheet
  double network;      ///< bytes per second and direction to other machines, per GPU; assumed
  double host_memory;  ///< bytes per second of host memory, per GPU; assumed
  // What large ones reach of that.
  double product_share, attention_share, bandwidth_share, link_share;
};

/// Seconds from one launch to the next at least.
inline constexpr double kLaunch = 3e-6;
/// Seconds that a collective takes beside its bytes.
inline constexpr double kCollective = 20e-6;
/// Bytes of a GPU's memory that CUDA, its libraries and the allocator's gaps take.
inline constexpr int64_t kOwnMemory = int64_t{1536} << 20;

std::span<const Gpu> gpus();
/// nullptr: not in the table.
const Gpu* find_gpu(std::string_view name);

}  // namespace dsj::roofline

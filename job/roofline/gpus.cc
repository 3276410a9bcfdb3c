#include "job/roofline/gpus.h"

#include <algorithm>
#include <array>

namespace dsj::roofline {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr double kT = 1e12, kG = 1e9;

// clang-format off
// name, shown, memory, flops, bandwidth, link, host link, network, host memory, shares
constexpr std::array kGpus = {
    Gpu{"b200", "B200 SXM", 183359 * kMiB, 2250.0 * kT, 8000 * kG,
        900 * kG, 64 * kG, 50 * kG, 77 * kG, 0.80, 0.25, 0.90, 0.80},
    Gpu{"h200", "H200 SXM", 143771 * kMiB, 989.4 * kT, 4800 * kG,
        450 * kG, 64 * kG, 50 * kG, 77 * kG, 0.70, 0.15, 0.87, 0.80},
    Gpu{"h100", "H100 SXM", 81559 * kMiB, 989.4 * kT, 3350 * kG,
        450 * kG, 64 * kG, 50 * kG, 77 * kG, 0.70, 0.15, 0.87, 0.80},
    Gpu{"a100", "A100 80 GB SXM", 81920 * kMiB, 312.0 * kT, 2039 * kG,
        300 * kG, 32 * kG, 25 * kG, 51 * kG, 0.80, 0.60, 0.90, 0.80},
    Gpu{"l40s", "L40S", 46068 * kMiB, 362.0 * kT, 864 * kG,
        32 * kG, 32 * kG, 12.5 * kG, 51 * kG, 0.80, 0.60, 0.90, 0.80},
    Gpu{"4090", "GeForce RTX 4090", 24564 * kMiB, 165.2 * kT, 1008 * kG,
        32 * kG, 32 * kG, 12.5 * kG, 51 * kG, 0.80, 0.60, 0.90, 0.80},
    Gpu{"3090", "GeForce RTX 3090", 24576 * kMiB, 71.0 * kT, 936 * kG,
        32 * kG, 32 * kG, 12.5 * kG, 51 * kG, 0.80, 0.60, 0.90, 0.80},
    Gpu{"a10g", "A10G", 23028 * kMiB, 70.0 * kT, 600 * kG,
        32 * kG, 32 * kG, 12.5 * kG, 51 * kG, 0.80, 0.60, 0.90, 0.80},
    Gpu{"l4", "L4", 23034 * kMiB, 121.0 * kT, 300 * kG,
        32 * kG, 32 * kG, 12.5 * kG, 51 * kG, 0.80, 0.60, 0.90, 0.80},
};
// clang-format on

}  // namespace

std::span<const Gpu> gpus() {
  return kGpus;
}

const Gpu* find_gpu(std::string_view name) {
  const auto found = std::ranges::find_if(kGpus, [&](const Gpu& gpu) { return gpu.name == name; });
  return found == kGpus.end() ? nullptr : &*found;
}

}  // namespace dsj::roofline

#include "tests/engine/gpu/gpu.h"

#include <cstdio>
#include <cstdlib>

#include "engine/train/inputs/accelerator.h"
#include "test_paths.h"

namespace dsj::gpu {

const Gpu& gpu() {
  static const Gpu found = [] {
    const char* const stand_in = std::getenv("DSJ_GPU_STAND_IN");
    if (stand_in != nullptr && std::string(stand_in) == "cpu")
      return Gpu{at::kCPU, "the CPU in its place"};
    const auto place = train::choose_place({.device = "cuda"}, 0);
    if (!place) {
      std::printf("result: gpu_tests NOT RUN: %s\n", place.error().to_string().c_str());
      return Gpu{std::nullopt, place.error().to_string()};
    }
    return Gpu{place->device, place->said};
  }();
  return found;
}

std::string source_dir() {
  const char* const given = std::getenv("DSJ_SOURCE_DIR");
  return given != nullptr ? given : DSJ_SOURCE_DIR;
}

}  // namespace dsj::gpu

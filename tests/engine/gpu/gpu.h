// The GPU of this machine, for tests. Without one every test says so and is skipped.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace dsj::gpu {

struct Gpu {
  std::optional<at::Device> place;  ///< the first GPU, with our kernels
  std::string said;                 ///< what was taken, or why there is none
};
/// Found with the first call, as dsj-train finds it: libdsj_cuda.so lies beside this program.
/// DSJ_GPU_STAND_IN=cpu: the CPU, for a rehearsal.
const Gpu& gpu();

/// The repository's files: DSJ_SOURCE_DIR of the environment, else where this was compiled.
std::string source_dir();

}  // namespace dsj::gpu

#define DSJ_NEEDS_GPU() \
  if (!dsj::gpu::gpu().place) GTEST_SKIP() << "NOT RUN: " << dsj::gpu::gpu().said

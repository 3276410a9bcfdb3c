// Where a rank computes: it chooses (engine/cuda/choice.h), opens libdsj_cuda.so where a GPU is
// chosen, and makes the GPU the calling thread's own.
// Tested by: tests/engine/cuda/choice_test.cc, tests/engine/cuda/open_test.cc, tests/run/train_run_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "common/result.h"
#include "job/training_args.h"

namespace dsj::train {

struct Place {
  at::Device device = at::kCPU;
  std::string said;  ///< "cpu (no CUDA driver (libcuda.so.1) is here)"
};

/// Call on the thread that trains, before anything asks libtorch for CUDA. Environment: the job
/// asks for a GPU and this rank can have none.
Result<Place> choose_place(const TrainingArgs& training, int local_rank);

}  // namespace dsj::train

// Chooses the device of a rank (engine/cuda/choice.h), loads libdsj_cuda.so if it is a GPU, and
// makes the GPU current on the calling thread.
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

/// Call it on the training thread, before any CUDA call of libtorch. Environment: the job asks for
/// a GPU and this rank has none.
Result<Place> choose_place(const TrainingArgs& training, int local_rank);

}  // namespace dsj::train

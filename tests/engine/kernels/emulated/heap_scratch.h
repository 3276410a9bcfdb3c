// Scratch of the emulated device: buffers that the memory watch knows.
#pragma once

#include <map>
#include <memory>

#include "engine/kernels/cuda/cuda_port.h"
#include "tests/engine/kernels/emulated/watch.h"

namespace dsj::emulated {

class HeapScratch final : public kernels::cuda::Scratch {
 public:
  void* take(kernels::Stream, size_t bytes) override {
    auto buffer = std::make_unique<Buffer>(bytes);
    void* const memory = buffer->data();
    taken_[memory] = std::move(buffer);
    return memory;
  }
  void give(kernels::Stream, void* memory) override { taken_.erase(memory); }

 private:
  std::map<void*, std::unique_ptr<Buffer>> taken_;
};

}  // namespace dsj::emulated

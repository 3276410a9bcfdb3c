// The plugin: compiled with CUDA's headers, only into libdsj_cuda.so.
#include "engine/cuda/plugin.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_interface.h>
#include <cuda_runtime_api.h>

#include <exception>

#include "engine/comm/nccl.h"
#include "engine/kernels/cuda/cuda_port.h"
#include "engine/memory/shortage.h"

namespace dsj::cuda {
namespace {

/// libtorch's allocator is ordered by stream: freed memory is reused only by later work of the same
/// stream.
class Scratch final : public kernels::cuda::Scratch {
 public:
  void* take(kernels::Stream stream, size_t bytes) override {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(stream.device));
    return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(
        bytes, static_cast<cudaStream_t>(stream.handle));
  }
  void give(kernels::Stream, void* memory) override {
    if (memory != nullptr) c10::cuda::CUDACachingAllocator::raw_delete(memory);
  }
};

Status use_device(int device) {
  try {
    at::globalContext().lazyInitDevice(at::kCUDA);
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
    c10::cuda::device_synchronize();  // creates the context: problems of the GPU appear here
    // Products are summed in fp32 and rounded once, as on the CPU. By default cuBLAS may add the
    // parts of a split sum in 16 bits.
    at::globalContext().setAllowBF16ReductionCuBLAS(false);
    at::globalContext().setAllowFP16ReductionCuBLAS(false);
    c10::cuda::CUDACachingAllocator::attachOutOfMemoryObserver(
        [](int64_t, size_t wanted, size_t all, size_t left) {
          memory::note_shortage(static_cast<int64_t>(wanted), static_cast<int64_t>(all),
                                static_cast<int64_t>(left));
        });
  } catch (const c10::Error& error) {
    return fail(ErrorKind::Environment, "GPU " + std::to_string(device) +
                                            " cannot be used: " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail(ErrorKind::Environment,
                "GPU " + std::to_string(device) + " cannot be used: " + error.what());
  }
  return {};
}

int compute_capability(int device) {
  int major = 0, minor = 0;
  const bool known =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess;
  return known ? 10 * major + minor : 0;
}

kernels::Port& port(kernels::Port& rest) {
  static Scratch scratch;
  static const auto one = kernels::cuda::make_cuda_port(rest, scratch);
  return *one;
}

void* take_pages(size_t bytes) {
  void* memory = nullptr;
  if (cudaHostAlloc(&memory, bytes, cudaHostAllocPortable) == cudaSuccess) return memory;
  (void)cudaGetLastError();  // clears the error; else the next CUDA call reports it
  return nullptr;
}
void give_pages(void* memory) {
  (void)cudaFreeHost(memory);
}

}  // namespace
}  // namespace dsj::cuda

extern "C" __attribute__((visibility("default"))) const dsj::cuda::Plugin* dsj_cuda_plugin() {
  static const dsj::cuda::Plugin plugin{
      dsj::cuda::kInterface, dsj::cuda::use_device, dsj::cuda::compute_capability, dsj::cuda::port,
      dsj::cuda::take_pages, dsj::cuda::give_pages, dsj::comm::make_nccl};
  return &plugin;
}

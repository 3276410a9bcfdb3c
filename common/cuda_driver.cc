#include "common/cuda_driver.h"

#include <dlfcn.h>

#include <algorithm>

namespace dsj {
namespace {

/// Bytes of the GPU with the least; 0 if the driver does not say.
int64_t least_memory(void* library, int devices) {
  const auto get = reinterpret_cast<int (*)(int*, int)>(dlsym(library, "cuDeviceGet"));
  const auto total = reinterpret_cast<int (*)(size_t*, int)>(dlsym(library, "cuDeviceTotalMem_v2"));
  size_t least = SIZE_MAX;
  for (int i = 0; i < devices; ++i) {
    int device = 0;
    size_t bytes = 0;
    if (get == nullptr || total == nullptr || get(&device, i) != 0 || total(&bytes, device) != 0)
      return 0;
    least = std::min(least, bytes);
  }
  return devices > 0 ? static_cast<int64_t>(least) : 0;
}

}  // namespace

CudaDriver cuda_driver(const char* file) {
  CudaDriver driver{.library = dlopen(file, RTLD_NOW | RTLD_GLOBAL)};
  if (driver.library == nullptr) {
    driver.lacking = std::string("no CUDA driver (") + file + ") is here";
    return driver;
  }
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver.library, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver.library, "cuDeviceGetCount"));
  const int code = init != nullptr ? init(0) : -1;
  if (code != 0 || count == nullptr || count(&driver.devices) != 0) {
    driver.devices = 0;
    driver.lacking = "the CUDA driver shows no GPU (cuInit returns " + std::to_string(code) + ")";
  } else if (driver.devices == 0) {
    driver.lacking = "the CUDA driver shows no GPU";
  }
  driver.memory = least_memory(driver.library, driver.devices);
  return driver;
}

}  // namespace dsj

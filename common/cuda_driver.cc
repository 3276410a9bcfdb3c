#include "common/cuda_driver.h"

#include <dlfcn.h>

namespace dsj {

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
  return driver;
}

}  // namespace dsj

#include "agent/health/nvml.h"

#include <dlfcn.h>

#include <memory>

namespace dsj::agent {
namespace {

// From nvml.h's documented ABI: result codes, enumerators, and a handle that is a pointer.
using Device = void*;
constexpr int kOk = 0, kGpuIsLost = 15, kUncorrected = 1, kVolatile = 0, kLinksMax = 18;

struct Close {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, Close>;

template <typename... Parameters>
class Function {
 public:
  Function(const Library& library, const char* name)
      : call_(reinterpret_cast<int (*)(Parameters...)>(dlsym(library.get(), name))) {}
  /// The library's result; -1: it has no such function.
  int operator()(Parameters... parameters) const { return call_ ? call_(parameters...) : -1; }

 private:
  int (*call_)(Parameters...);
};

std::string why(const Library& library, int result) {
  const auto text = reinterpret_cast<const char* (*)(int)>(dlsym(library.get(), "nvmlErrorString"));
  const char* found = text ? text(result) : nullptr;
  return found ? found : "error " + std::to_string(result);
}

GpuFacts read_gpu(const Library& library, Device device, int index) {
  GpuFacts gpu{.index = index};
  unsigned long long errors = 0;
  const int told = Function<Device, int, int, unsigned long long*>(
      library, "nvmlDeviceGetTotalEccErrors")(device, kUncorrected, kVolatile, &errors);
  if (told == kOk) gpu.uncorrected = static_cast<int64_t>(errors);
  gpu.lost = told == kGpuIsLost;
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  const int remapped = Function<Device, unsigned*, unsigned*, unsigned*, unsigned*>(
      library, "nvmlDeviceGetRemappedRows")(device, &corrected, &uncorrected, &pending, &failed);
  if (remapped == kOk) {
    gpu.remap_pending = pending != 0;
    gpu.remap_failed = failed != 0;
  }
  gpu.lost |= remapped == kGpuIsLost;
  const Function<Device, unsigned, int*> link_state(library, "nvmlDeviceGetNvLinkState");
  for (unsigned link = 0; link < kLinksMax; ++link) {
    int active = 0;
    if (link_state(device, link, &active) != kOk) continue;
    gpu.links_up = gpu.links_up.value_or(0) + (active != 0);
    gpu.links_down = gpu.links_down.value_or(0) + (active == 0);
  }
  return gpu;
}

}  // namespace

std::optional<DriverFacts> read_gpus(const std::string& library_name) {
  const Library library(dlopen(library_name.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!library) return std::nullopt;
  DriverFacts facts;
  if (const int begun = Function<>(library, "nvmlInit_v2")(); begun != kOk) {
    facts.problem = why(library, begun);
    return facts;
  }
  char version[96] = "";
  if (Function<char*, unsigned>(library, "nvmlSystemGetDriverVersion")(version, sizeof version) ==
      kOk) {
    facts.version = version;
  }
  unsigned count = 0;
  const int counted = Function<unsigned*>(library, "nvmlDeviceGetCount_v2")(&count);
  if (counted != kOk) facts.problem = why(library, counted);
  for (unsigned i = 0; counted == kOk && i < count; ++i) {
    Device device = nullptr;
    const int found =
        Function<unsigned, Device*>(library, "nvmlDeviceGetHandleByIndex_v2")(i, &device);
    const int index = static_cast<int>(i);
    if (found == kOk) {
      facts.gpus.push_back(read_gpu(library, device, index));
    } else if (found == kGpuIsLost) {
      facts.gpus.push_back({.index = index, .lost = true});
    }
  }
  Function<>(library, "nvmlShutdown")();
  return facts;
}

}  // namespace dsj::agent

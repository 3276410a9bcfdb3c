#include "engine/cuda/open.h"

#include <cuda_interface.h>
#include <dlfcn.h>

#include <filesystem>

#include "common/cuda_driver.h"

namespace dsj::cuda {
namespace {

namespace fs = std::filesystem;

template <typename F>
F* function_of(void* library, const char* name) {
  return reinterpret_cast<F*>(dlsym(library, name));
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Compute capabilities of all devices, 90 for 9.0, 0 if unknown.
std::vector<int> capabilities(void* driver, int devices) {
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
  const auto get = function_of<int(int*, int)>(driver, "cuDeviceGet");
  const auto attribute = function_of<int(int*, int, int)>(driver, "cuDeviceGetAttribute");
  std::vector<int> all;
  for (int i = 0; i < devices; ++i) {
    int device = 0, major = 0, minor = 0;
    const bool known = get != nullptr && attribute != nullptr && get(&device, i) == 0 &&
                       attribute(&major, kMajor, device) == 0 &&
                       attribute(&minor, kMinor, device) == 0;
    all.push_back(known ? 10 * major + minor : 0);
  }
  return all;
}

/// With an older driver libdsj_cuda.so would load, but CUDA would refuse its first call.
void check_driver_version(void* driver, Found& found) {
  const auto get = function_of<int(int*)>(driver, "cuDriverGetVersion");
  int version = 0;
  if (get == nullptr || get(&version) != 0 || version >= kOldestDriver) return;
  found.plugin_problem = "the driver is made for CUDA " + version_text(version) + ", and " +
                         kCudaLibrary + " needs one for CUDA " + version_text(kOldestDriver) +
                         " or later (580 or later)";
}

const Plugin* load(const std::string& file, Found& found) {
  if (!found.plugin_there) {
    found.plugin_problem = file + " is not there: this build has no GPU half";
    return nullptr;
  }
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    found.plugin_problem = std::string(kCudaLibrary) + " cannot be loaded: " + dlerror();
    return nullptr;
  }
  const auto entry = function_of<const Plugin*()>(library, kPluginEntry);
  const Plugin* const plugin = entry != nullptr ? entry() : nullptr;
  if (plugin == nullptr || std::string(plugin->interface) != kInterface) {
    found.plugin_problem = file + " comes from another build";
    return nullptr;
  }
  return plugin;
}

}  // namespace

Opened open(const char* driver, const std::string& plugin) {
  Opened opened;
  const CudaDriver shown = cuda_driver(driver);
  opened.found.devices = shown.devices;
  opened.found.lacking = shown.lacking;
  if (shown.devices == 0) return opened;
  opened.found.capabilities = capabilities(shown.library, shown.devices);
  check_driver_version(shown.library, opened.found);
  std::error_code ignored;
  const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const std::string file = plugin.empty() ? (here / kCudaLibrary).string() : plugin;
  opened.found.plugin_there = fs::exists(file, ignored);
  if (opened.found.plugin_there && !opened.found.plugin_problem.empty()) return opened;
  opened.plugin = load(file, opened.found);
  return opened;
}

}  // namespace dsj::cuda

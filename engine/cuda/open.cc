#include "engine/cuda/open.h"

#include <cuda_interface.h>
#include <dlfcn.h>

#include <filesystem>

namespace dsj::cuda {
namespace {

namespace fs = std::filesystem;

template <typename F>
F* function_of(void* library, const char* name) {
  return reinterpret_cast<F*>(dlsym(library, name));
}

/// By the driver's own functions: CUDA's run-time library is not here yet.
void count_devices(const char* driver, Found& found) {
  void* const library = dlopen(driver, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    found.lacking = std::string("no CUDA driver (") + driver + ") is here";
    return;
  }
  const auto init = function_of<int(unsigned)>(library, "cuInit");
  const auto count = function_of<int(int*)>(library, "cuDeviceGetCount");
  const int code = init != nullptr ? init(0) : -1;
  if (code != 0 || count == nullptr || count(&found.devices) != 0) {
    found.devices = 0;
    found.lacking = "the CUDA driver shows no GPU (cuInit returns " + std::to_string(code) + ")";
  } else if (found.devices == 0) {
    found.lacking = "the CUDA driver shows no GPU";
  }
}

const Plugin* load(const std::string& file, Found& found) {
  std::error_code ignored;
  found.plugin_there = fs::exists(file, ignored);
  if (!found.plugin_there) {
    found.plugin_problem = file + " is not there: this build has no GPU half";
    return nullptr;
  }
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    found.plugin_problem = std::string(kPluginFile) + " cannot be loaded: " + dlerror();
    return nullptr;
  }
  const auto entry = function_of<const Plugin*()>(library, kPluginEntry);
  const Plugin* const plugin = entry != nullptr ? entry() : nullptr;
  if (plugin == nullptr || std::string(plugin->interface) != kInterface) {
    found.plugin_problem = file + " is of another build";
    return nullptr;
  }
  return plugin;
}

}  // namespace

Opened open(const char* driver, const std::string& plugin) {
  Opened opened;
  count_devices(driver, opened.found);
  if (opened.found.devices == 0) return opened;
  std::error_code ignored;
  const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  opened.plugin = load(plugin.empty() ? (here / kPluginFile).string() : plugin, opened.found);
  return opened;
}

}  // namespace dsj::cuda

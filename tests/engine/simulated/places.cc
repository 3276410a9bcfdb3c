// The names of places: which of the engine's functions asked for an operation.
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

#include <array>
#include <cstdlib>

#include "tests/engine/simulated/late_queues.h"

namespace dsj::simulated {
namespace {

/// "dsj::zero::Flat::release()", or "" for what is no function of the engine's own.
std::string engine_function(void* frame) {
  Dl_info info{};
  void* extra = nullptr;
  auto* const at = static_cast<char*>(frame) - 1;
  if (dladdr1(at, &info, &extra, RTLD_DL_SYMENT) == 0 || info.dli_sname == nullptr) return {};
  const auto* symbol = static_cast<const ElfW(Sym)*>(extra);
  if (at >= static_cast<char*>(info.dli_saddr) + symbol->st_size) return {};
  int status = 0;
  char* const shown = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
  std::string name = status == 0 ? shown : "";
  std::free(shown);
  name.resize(std::min(name.size(), name.find('(')));
  if (!name.starts_with("dsj::")) return {};
  for (const char* inner : {"dsj::simulated::", "dsj::device::"})
    if (name.starts_with(inner)) return {};
  return name;
}

}  // namespace

Place place_here(std::string name) {
  std::array<void*, 20> frames{};
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  return std::make_shared<const std::function<std::string()>>(
      [name = std::move(name), frames, count] {
        std::string shown = name;
        int told = 0;
        for (int i = 0; i < count && told < 2; ++i) {
          const std::string function = engine_function(frames[static_cast<size_t>(i)]);
          if (!function.empty()) shown += (told++ == 0 ? " in " : " of ") + function;
        }
        return shown;
      });
}

}  // namespace dsj::simulated

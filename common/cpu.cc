#include "common/cpu.h"

#include <cstdlib>
#include <string_view>

namespace dsj {

bool cpu_multiplies_bf16() {
  static const bool does = [] {
    const char* asked = std::getenv("DSJ_NATIVE_BF16");
    if (asked && std::string_view(asked) == "0") return false;
#if defined(__x86_64__)
    __builtin_cpu_init();
    return static_cast<bool>(__builtin_cpu_supports("avx512bf16"));
#else
    return false;
#endif
  }();
  return does;
}

}  // namespace dsj

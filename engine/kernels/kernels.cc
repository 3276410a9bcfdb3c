#include "engine/kernels/kernels.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace dsj::kernels {

#ifdef DSJ_KERNELS_X86
extern const Table& table_avx512;
extern const Table& table_avx2;
#endif
extern const Table& table_baseline;

const Table* table(const char* isa) {
#ifdef DSJ_KERNELS_X86
  __builtin_cpu_init();
  // The instruction sets that both are compiled with. A hypervisor can hide each of them.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  if (!std::strcmp(isa, "avx512")) {
    const bool has = avx2 && __builtin_cpu_supports("avx512f") &&
                     __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                     __builtin_cpu_supports("avx512dq");
    return has ? &table_avx512 : nullptr;
  }
  if (!std::strcmp(isa, "avx2")) return avx2 ? &table_avx2 : nullptr;
#endif
  return std::strcmp(isa, "baseline") ? nullptr : &table_baseline;
}

const Table& table() {
  static const Table* best = [] {
    if (const char* asked = std::getenv("DSJ_ISA")) {
      if (const Table* found = table(asked)) return found;
    }
    for (const char* isa : {"avx512", "avx2"}) {
      if (const Table* found = table(isa)) return found;
    }
    return table("baseline");
  }();
  return *best;
}

}  // namespace dsj::kernels

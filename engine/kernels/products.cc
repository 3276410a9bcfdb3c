#include "engine/kernels/products.h"

#include <cstdlib>
#include <cstring>

#include "engine/kernels/kernels.h"

namespace dsj::kernels {

#ifdef DSJ_KERNELS_X86
extern const ProductTable products_avx512bf16;
extern const ProductTable products_avx512;
extern const ProductTable products_avx2;
#endif
extern const ProductTable products_baseline;

const ProductTable* product_table(const char* isa) {
#ifdef DSJ_KERNELS_X86
  if (!std::strcmp(isa, "avx512bf16"))
    return table("avx512") && __builtin_cpu_supports("avx512bf16") ? &products_avx512bf16 : nullptr;
  if (!std::strcmp(isa, "avx512")) return table(isa) ? &products_avx512 : nullptr;
  if (!std::strcmp(isa, "avx2")) return table(isa) ? &products_avx2 : nullptr;
#endif
  return std::strcmp(isa, "baseline") ? nullptr : &products_baseline;
}

const ProductTable& product_table() {
  static const ProductTable* best = [] {
    const char* const native = std::getenv("DSJ_NATIVE_BF16");
    const bool units = !native || std::strcmp(native, "0");
    const char* const isa = table().isa;
    if (const ProductTable* found = product_table("avx512bf16");
        found && units && !std::strcmp(isa, "avx512"))
      return found;
    return product_table(isa);
  }();
  return *best;
}

}  // namespace dsj::kernels

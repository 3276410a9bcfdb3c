// What this machine's processor can do, as far as it changes the memory of a run. Read once.
#pragma once

#include <cstdint>

namespace dsj {

/// Whether this CPU has units for bf16 products. If not, products widen what they pack
/// (engine/kernels/products.h), and attention runs on fp32 copies. DSJ_NATIVE_BF16=0 makes it false
/// on any machine.
bool cpu_multiplies_bf16();

/// Where it has, multiplications of a product from which on it is libtorch's: oneDNN's kernels win
/// there even where they are compiled first. Smaller ones are the engine's (engine/device/products.h).
inline constexpr int64_t kLibraryProducts = int64_t{1} << 27;

}  // namespace dsj

// Properties of this machine's processor that affect the memory of a run. Read once.
#pragma once

#include <cstdint>

namespace dsj {

/// Whether this CPU has units for bf16 products. Without them, products widen their packed operands
/// (engine/kernels/products.h), and attention runs on fp32 copies. DSJ_NATIVE_BF16=0 makes it false
/// on any machine.
bool cpu_multiplies_bf16();

/// With such units, libtorch runs products from so many multiplications on: oneDNN's kernels win
/// even with compilation. Smaller ones are the engine's (engine/device/products.h).
inline constexpr int64_t kLibraryProducts = int64_t{1} << 27;

}  // namespace dsj

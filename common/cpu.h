// What this machine's processor can do, as far as it changes the memory of a run. Read once.
#pragma once

namespace dsj {

/// Whether this CPU has units for bf16 products. If not, products widen what they pack
/// (engine/kernels/products.h), and attention runs on fp32 copies. DSJ_NATIVE_BF16=0 makes it false
/// on any machine.
bool cpu_multiplies_bf16();

}  // namespace dsj

// What this machine's processor can do, as far as it changes the memory of a run. Read once.
#pragma once

namespace dsj {

/// Whether this CPU multiplies bf16 matrices natively. If not, products run in fp32 on widened
/// copies (engine/models/gemm.h). DSJ_NATIVE_BF16=0 makes it false on any machine.
bool cpu_multiplies_bf16();

}  // namespace dsj

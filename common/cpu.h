// What this machine's processor can do that changes how much memory a run takes. Read once.
#pragma once

namespace dsj {

/// Whether matrix products of bf16 run on this CPU as they are. Else they run in fp32 on widened
/// copies (engine/models/gemm.h). DSJ_NATIVE_BF16=0 says no on any machine.
bool cpu_multiplies_bf16();

}  // namespace dsj

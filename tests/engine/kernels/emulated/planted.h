// Small kernels with one fault each, and what is right beside it. For the emulator's own tests.
#pragma once

namespace dsj::emulated::planted {

enum class Plant {
  None,
  NoBarrier,
  NoWarpBarrier,
  DivergentBarrier,
  EndsBeforeBarrier,
  UnwrittenShared,
  SharedOutside,
  GlobalOutside,
  BlocksShareAWord,
  MaskWithoutCaller,
  MaskOfMissingLane,
  ShuffleOutsideMask,
};

/// out[i] = the sum of in[0..n) on every thread i of one block of n threads, with the fault.
void block_sum(Plant plant, const float* in, float* out, int n);
/// out[0] = the number of the block, from each of two blocks: a race between blocks.
void two_blocks(float* out);

}  // namespace dsj::emulated::planted

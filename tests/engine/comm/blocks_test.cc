// Codes and scales of blocks: by hand, the CPU's loops against libtorch's operations, and the bound of
// the error.
#include "engine/comm/blocks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace dsj::comm {
namespace {

using wire::kWireBlock;

BlockCodes codes_for(std::int64_t rows, std::int64_t n, int bits) {
  return part_of(at::zeros({rows, wire::message_bytes(n, bits)}, at::kByte), n, bits, 0, n);
}

at::Tensor back(const Blocks& blocks, const at::Tensor& x, int bits) {
  const BlockCodes codes = codes_for(x.size(0), x.size(1), bits);
  blocks.quantize(x, bits, codes);
  const at::Tensor out = at::empty_like(x);
  blocks.dequantize(codes, bits, out);
  return out;
}

// 2^b / (2 m) with m = 4: 32 for 8 bits, 2 for 4.
TEST(WireBlocks, ByHand) {
  for (const Blocks* blocks : {&cpu_blocks(), &aten_blocks()}) {
    const at::Tensor x = at::zeros({1, kWireBlock});
    const float first[] = {4, -4, 1, 0.25f, 0.75f, -0.25f, -0.3f, 0.015625f};
    for (int i = 0; i < 8; ++i) x[0][i] = first[i];
    BlockCodes eight = codes_for(1, kWireBlock, 8);
    blocks->quantize(x, 8, eight);
    EXPECT_EQ(eight.scales[0][0].item<float>(), 1.f / 32);
    const int whole[] = {127, -128, 32, 8, 24, -8, -10, 0};  // 128 does not fit; 0.5 goes to 0
    for (int i = 0; i < 8; ++i)
      EXPECT_EQ(static_cast<std::int8_t>(eight.codes[0][i].item<int>()), whole[i]) << i;
    BlockCodes four = codes_for(1, kWireBlock, 4);
    blocks->quantize(x, 4, four);
    EXPECT_EQ(four.scales[0][0].item<float>(), 0.5f);
    // 7 and -8; 2 and 0 (0.5 to even); 2 (1.5 to even) and 0; -1 and 0. The first is the lower half.
    const int halves[] = {0x87, 0x02, 0x02, 0x0f};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(four.codes[0][i].item<int>(), halves[i]) << i;
    const at::Tensor sum = at::empty({kWireBlock});
    blocks->sum(four, 4, sum);
    const float read[] = {3.5f, -4, 1, 0, 1, 0, -0.5f, 0};
    for (int i = 0; i < 8; ++i) EXPECT_EQ(sum[i].item<float>(), read[i]) << i;
  }
}

TEST(WireBlocks, WhatIsNotFiniteSpoilsItsBlockAlone) {
  for (const Blocks* blocks : {&cpu_blocks(), &aten_blocks()}) {
    for (const float bad : {INFINITY, -INFINITY, NAN, -NAN}) {
      for (const int bits : {4, 8}) {
        const at::Tensor x = at::ones({1, 2 * kWireBlock});
        x[0][3] = bad;
        const at::Tensor out = back(*blocks, x, bits);
        EXPECT_TRUE(out.narrow(1, 0, kWireBlock).isnan().all().item<bool>());
        EXPECT_TRUE(out.narrow(1, kWireBlock, kWireBlock).isfinite().all().item<bool>());
      }
    }
  }
}

TEST(WireBlocks, ZerosAndTinyNumbersComeBackAsZeros) {
  for (const Blocks* blocks : {&cpu_blocks(), &aten_blocks()})
    for (const float value : {0.f, -0.f, 1e-38f, 1e-44f, 9e-37f})
      EXPECT_EQ(back(*blocks, at::full({1, kWireBlock}, value), 8).abs().max().item<float>(), 0);
}

/// Half a code's step for every number but those at the positive end, which lose at most a whole one.
TEST(WireBlocks, TheErrorIsHalfAStep) {
  at::manual_seed(3);
  for (const int bits : {4, 8}) {
    const at::Tensor x = at::randn({3, 8 * kWireBlock}) * at::randn({3, 1}).exp();
    const at::Tensor step =
        x.view({3, -1, kWireBlock}).abs().amax(-1, true) / static_cast<double>(1 << (bits - 1));
    const at::Tensor error = (back(cpu_blocks(), x, bits) - x).view({3, -1, kWireBlock});
    const at::Tensor at_top = x.view({3, -1, kWireBlock}) > step * ((1 << (bits - 1)) - 1.5);
    const at::Tensor bound = at::where(at_top, step, step / 2) * 1.0001;
    EXPECT_TRUE(error.abs().le(bound).all().item<bool>()) << bits;
  }
}

/// Every type, rows that lie apart, parts of a message, several pieces.
TEST(WireBlocks, BothFormsAgreeOnRandomNumbers) {
  at::manual_seed(5);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int bits : {4, 8}) {
      for (const std::int64_t blocks : {1, 3, 7, 1500}) {
        const std::int64_t n = blocks * kWireBlock;
        const at::Tensor x = at::randn({3, n + 64}).to(type).narrow(1, 32, n);
        const at::Tensor cpu = at::zeros({3, wire::message_bytes(n + kWireBlock, bits)}, at::kByte);
        const at::Tensor aten = cpu.clone();
        const auto part = [&](const at::Tensor& message) {
          return part_of(message, n + kWireBlock, bits, kWireBlock, n);
        };
        cpu_blocks().quantize(x, bits, part(cpu));
        aten_blocks().quantize(x, bits, part(aten));
        EXPECT_TRUE(at::equal(cpu, aten))
            << type << " " << bits << " bits, " << blocks << " blocks";
        const at::Tensor out = at::empty({3, n + 8}, x.options()).narrow(1, 4, n);
        const at::Tensor other = at::empty_like(out);
        cpu_blocks().dequantize(part(cpu), bits, out);
        aten_blocks().dequantize(part(cpu), bits, other);
        EXPECT_TRUE(at::equal(out, other));
        const at::Tensor sum = at::empty({n}, x.options()), other_sum = at::empty_like(sum);
        cpu_blocks().sum(part(cpu), bits, sum);
        aten_blocks().sum(part(cpu), bits, other_sum);
        EXPECT_TRUE(at::equal(sum, other_sum));
      }
    }
  }
}

}  // namespace
}  // namespace dsj::comm

#include "engine/comm/blocks.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <limits>

#include "common/check.h"

namespace dsj::comm {
namespace {

using wire::kWireBlock;

constexpr float kTiny = 1e-36f;  // below it the factor is not finite
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kGrain = 32;  // blocks per thread, at least

using Block = std::array<float, kWireBlock>;

/// Codes and scales of rows as plain memory.
struct Rows {
  std::uint8_t* codes;
  float* scales;
  std::int64_t code_stride, scale_stride, count, blocks;
};

Rows rows_of(const BlockCodes& of) {
  DSJ_CHECK(of.codes.stride(1) == 1 && of.scales.stride(1) == 1);
  return {of.codes.data_ptr<std::uint8_t>(),
          of.scales.data_ptr<float>(),
          of.codes.stride(0),
          of.scales.stride(0),
          of.codes.size(0),
          of.scales.size(1)};
}

/// Rounds to nearest even, for magnitudes below 2^22, by additions that every CPU can vectorise.
float rounded(float x) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23
  return (x + kShift) - kShift;
}

/// Quantizes one block: its codes and its scale.
void quantize_block(const Block& x, int bits, std::uint8_t* codes, float& scale) {
  std::uint32_t top = 0;  // compared as bits: NaN > infinity > all numbers
  for (const float value : x)
    top = std::max(top, std::bit_cast<std::uint32_t>(value) & 0x7fffffffu);
  const float most = std::bit_cast<float>(top);
  const bool finite = top < 0x7f800000u;
  const auto limit = static_cast<float>(1 << (bits - 1));
  const float factor = !finite ? 0 : most < kTiny ? 1 : limit / most;
  scale = finite ? 1 / factor : kNan;
  std::array<std::int8_t, kWireBlock> whole;
  if (finite) {
    for (std::size_t i = 0; i < x.size(); ++i)
      whole[i] = static_cast<std::int8_t>(
          static_cast<std::int32_t>(std::min(rounded(x[i] * factor), limit - 1)));
  } else {
    whole.fill(0);
  }
  if (bits == 8) {
    for (std::size_t i = 0; i < whole.size(); ++i) codes[i] = static_cast<std::uint8_t>(whole[i]);
    return;
  }
  for (std::size_t i = 0; i < whole.size() / 2; ++i)
    codes[i] = static_cast<std::uint8_t>((whole[2 * i] & 15) | (whole[2 * i + 1] & 15) << 4);
}

/// x = the dequantized numbers of one block, or x += these.
template <bool kAdds>
void read_block(const std::uint8_t* codes, int bits, float scale, Block& x) {
  const auto put = [&](std::size_t i, int code) {
    const float value = static_cast<float>(code) * scale;
    x[i] = kAdds ? x[i] + value : value;
  };
  if (bits == 8) {
    for (std::size_t i = 0; i < x.size(); ++i) put(i, static_cast<std::int8_t>(codes[i]));
    return;
  }
  for (std::size_t i = 0; i < x.size() / 2; ++i) {
    put(2 * i, static_cast<std::int8_t>(codes[i] << 4) >> 4);
    put(2 * i + 1, static_cast<std::int8_t>(codes[i]) >> 4);
  }
}

/// Calls f(row, block) for all blocks, over libtorch's threads.
template <typename F>
void for_blocks(std::int64_t rows, std::int64_t blocks, F f) {
  at::parallel_for(0, rows * blocks, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i / blocks, i % blocks);
  });
}

class CpuBlocks final : public Blocks {
 public:
  void quantize(const at::Tensor& x, int bits, const BlockCodes& to) const override {
    const Rows rows = rows_of(to);
    DSJ_CHECK(x.size(0) == rows.count && x.size(1) == rows.blocks * kWireBlock && x.stride(1) == 1);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "quantize", [&] {
      const auto* from = x.const_data_ptr<scalar_t>();
      const std::int64_t stride = x.stride(0);
      for_blocks(rows.count, rows.blocks, [&](std::int64_t row, std::int64_t block) {
        Block values;
        const scalar_t* numbers = from + row * stride + block * kWireBlock;
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(numbers[i]);
        quantize_block(
            values, bits,
            rows.codes + row * rows.code_stride + wire::code_bytes(block * kWireBlock, bits),
            rows.scales[row * rows.scale_stride + block]);
      });
    });
  }

  void dequantize(const BlockCodes& from, int bits, const at::Tensor& out) const override {
    const Rows rows = rows_of(from);
    DSJ_CHECK(out.size(0) == rows.count && out.size(1) == rows.blocks * kWireBlock &&
              out.stride(1) == 1);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, out.scalar_type(), "dequantize", [&] {
      auto* to = out.data_ptr<scalar_t>();
      const std::int64_t stride = out.stride(0);
      for_blocks(rows.count, rows.blocks, [&](std::int64_t row, std::int64_t block) {
        Block values;
        read<false>(rows, row, block, bits, values);
        write(values, to + row * stride + block * kWireBlock);
      });
    });
  }

  void sum(const BlockCodes& from, int bits, const at::Tensor& out) const override {
    const Rows rows = rows_of(from);
    DSJ_CHECK(out.is_contiguous() && out.numel() == rows.blocks * kWireBlock);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, out.scalar_type(), "sum", [&] {
      auto* to = out.data_ptr<scalar_t>();
      for_blocks(1, rows.blocks, [&](std::int64_t, std::int64_t block) {
        Block values;
        read<false>(rows, 0, block, bits, values);
        for (std::int64_t row = 1; row < rows.count; ++row)
          read<true>(rows, row, block, bits, values);
        write(values, to + block * kWireBlock);
      });
    });
  }

 private:
  template <bool kAdds>
  static void read(const Rows& rows, std::int64_t row, std::int64_t block, int bits,
                   Block& values) {
    read_block<kAdds>(
        rows.codes + row * rows.code_stride + wire::code_bytes(block * kWireBlock, bits), bits,
        rows.scales[row * rows.scale_stride + block], values);
  }
  template <typename T>
  static void write(const Block& values, T* to) {
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = static_cast<T>(values[i]);
  }
};

class AtenBlocks final : public Blocks {
 public:
  void quantize(const at::Tensor& x, int bits, const BlockCodes& to) const override {
    for_pieces(to, bits, [&](const BlockCodes& piece, std::int64_t first, std::int64_t n) {
      quantize_piece(x.narrow(1, first, n), bits, piece);
    });
  }

  void dequantize(const BlockCodes& from, int bits, const at::Tensor& out) const override {
    for_pieces(from, bits, [&](const BlockCodes& piece, std::int64_t first, std::int64_t n) {
      out.narrow(1, first, n).copy_(numbers(piece, bits));
    });
  }

  void sum(const BlockCodes& from, int bits, const at::Tensor& out) const override {
    for_pieces(from, bits, [&](const BlockCodes& piece, std::int64_t first, std::int64_t n) {
      at::Tensor sum;
      for (std::int64_t row = 0; row < piece.codes.size(0); ++row) {
        const at::Tensor one =
            numbers({piece.codes.narrow(0, row, 1), piece.scales.narrow(0, row, 1)}, bits).view(-1);
        sum = sum.defined() ? sum.add_(one) : one;
      }
      out.narrow(0, first, n).copy_(sum);
    });
  }

 private:
  /// Calls f for pieces of all rows together.
  template <typename F>
  static void for_pieces(const BlockCodes& of, int bits, F f) {
    const std::int64_t n = of.scales.size(1) * kWireBlock;
    const std::int64_t blocks =
        std::max<std::int64_t>(1, wire::kPiece / of.codes.size(0) / kWireBlock);
    for (std::int64_t first = 0; first < n; first += blocks * kWireBlock) {
      const std::int64_t count = std::min(blocks * kWireBlock, n - first);
      f({of.codes.narrow(1, wire::code_bytes(first, bits), wire::code_bytes(count, bits)),
         of.scales.narrow(1, first / kWireBlock, count / kWireBlock)},
        first, count);
    }
  }

  static void quantize_piece(const at::Tensor& x, int bits, const BlockCodes& to) {
    const at::Tensor values = x.to(at::kFloat).reshape({x.size(0), -1, kWireBlock});
    const at::Tensor most = values.abs().amax(-1);
    const at::Tensor finite = most.isfinite();
    const double limit = 1 << (bits - 1);
    const at::Tensor factor =
        at::where(most.lt(kTiny), at::ones_like(most), at::full_like(most, limit).div(most));
    to.scales.copy_(at::where(finite, factor.reciprocal(), kNan));
    const at::Tensor codes = at::where(finite.unsqueeze(-1), values.mul(factor.unsqueeze(-1)), 0)
                                 .round_()
                                 .clamp_(-limit, limit - 1)
                                 .to(at::kShort)
                                 .view({x.size(0), -1});
    if (bits == 8) return void(to.codes.copy_(codes.bitwise_and(255)));
    const at::Tensor halves = codes.bitwise_and(15).view({x.size(0), -1, 2});
    to.codes.copy_(halves.select(2, 0).bitwise_or(halves.select(2, 1).bitwise_left_shift(4)));
  }

  /// [rows, n] fp32
  static at::Tensor numbers(const BlockCodes& from, int bits) {
    const std::int64_t rows = from.codes.size(0);
    at::Tensor codes = from.codes.to(at::kShort);
    if (bits == 8) {
      codes = codes.bitwise_xor(128).sub_(128);
    } else {
      codes = at::stack({codes.bitwise_and(15), codes.bitwise_right_shift(4)}, 2)
                  .bitwise_xor(8)
                  .sub_(8);
    }
    return codes.view({rows, -1, kWireBlock})
        .to(at::kFloat)
        .mul_(from.scales.unsqueeze(-1))
        .view({rows, -1});
  }
};

}  // namespace

BlockCodes part_of(const at::Tensor& messages, std::int64_t numel, int bits, std::int64_t first,
                   std::int64_t n) {
  DSJ_CHECK(numel % kWireBlock == 0 && first % kWireBlock == 0 && n % kWireBlock == 0);
  DSJ_CHECK(messages.size(1) == wire::message_bytes(numel, bits));
  const std::int64_t scales = wire::code_bytes(numel, bits);
  return {messages.narrow(1, wire::code_bytes(first, bits), wire::code_bytes(n, bits)),
          messages.narrow(1, scales + first / kWireBlock * 4, n / kWireBlock * 4).view(at::kFloat)};
}

const Blocks& cpu_blocks() {
  static const CpuBlocks blocks;
  return blocks;
}

const Blocks& aten_blocks() {
  static const AtenBlocks blocks;
  return blocks;
}

}  // namespace dsj::comm

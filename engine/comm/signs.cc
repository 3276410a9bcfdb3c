#include "engine/comm/signs.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace dsj::comm {
namespace {

static_assert(std::endian::native == std::endian::little, "pack() takes the first flag as lowest");

constexpr std::uint32_t kMinus = 0x80000000u;
constexpr std::int64_t kBlock = 64;    // numbers per loop
constexpr std::int64_t kGrain = 4096;  // bytes of signs per thread, at least

/// [byte][number]: the mask that gives +scale the sign that the bit says.
constexpr auto kSignsOf = [] {
  std::array<std::array<std::uint32_t, 8>, 256> of{};
  for (std::size_t byte = 0; byte < 256; ++byte)
    for (std::size_t i = 0; i < 8; ++i) of[byte][i] = (byte >> (7 - i) & 1) != 0 ? 0 : kMinus;
  return of;
}();

/// Packs eight flags of 0 or 1 into a byte, the first one highest. The product copies flag i from
/// bit 8 i to bit 63 - i, and no two of its terms overlap.
std::uint8_t pack(const std::uint8_t* flags) {
  std::uint64_t eight;
  std::memcpy(&eight, flags, sizeof eight);
  return static_cast<std::uint8_t>(eight * 0x8040201008040201u >> 56);
}

/// Writes the signs of up to kBlock numbers, a multiple of 8, and leaves the errors in `numbers`.
void compress_block(float* numbers, std::int64_t count, std::uint8_t* bytes, std::uint32_t scale) {
  std::array<std::uint8_t, kBlock> flags;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t minus = numbers[i] < 0;
    flags[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(minus ^ 1);
    numbers[i] -= std::bit_cast<float>(scale ^ minus << 31);
  }
  for (std::int64_t i = 0; i < count; i += 8)
    bytes[i / 8] = pack(&flags[static_cast<std::size_t>(i)]);
}

/// Calls f(index, signed scale) for n numbers, whose signs begin at number `first`.
template <typename F>
void for_signs(const std::uint8_t* bytes, std::int64_t first, std::int64_t n, float scale, F f) {
  const auto plus = std::bit_cast<std::uint32_t>(scale);
  const auto some = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>((first + i) & 7);
      f(i, std::bit_cast<float>(plus ^ kSignsOf[bytes[(first + i) >> 3]][at]));
    }
  };
  const std::int64_t head = std::min(n, -first & 7), whole = (n - head) / 8;
  some(0, head);
  const std::uint8_t* from = bytes + (first + head) / 8;
  at::parallel_for(0, whole, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t byte = begin; byte < end; ++byte) {
      const auto& signs = kSignsOf[from[byte]];
      for (std::int64_t i = 0; i < 8; ++i)
        f(head + byte * 8 + i, std::bit_cast<float>(plus ^ signs[static_cast<std::size_t>(i)]));
    }
  });
  some(head + whole * 8, n);
}

class CpuSigns final : public Signs {
 public:
  void compress(const at::Tensor& x, const at::Tensor& bits,
                const at::Tensor& scale) const override {
    const std::int64_t n = x.numel();
    auto* numbers = x.data_ptr<float>();
    auto* bytes = bits.data_ptr<std::uint8_t>();
    // DeepSpeed's own operations, because another rounding of the scale could change the sign of a
    // number near 0.
    scale.copy_(at::norm(x).div(std::sqrt(static_cast<double>(n))));
    const auto s = std::bit_cast<std::uint32_t>(*scale.const_data_ptr<float>());
    at::parallel_for(0, n / 8, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin * 8; i < end * 8; i += kBlock)
        compress_block(numbers + i, std::min(kBlock, end * 8 - i), bytes + i / 8, s);
    });
  }

  void add(const at::Tensor& sum, const at::Tensor& bits, const at::Tensor& scale,
           int world) const override {
    auto* out = sum.data_ptr<float>();
    const float s = *scale.const_data_ptr<float>() / static_cast<float>(world);
    for_signs(bits.const_data_ptr<std::uint8_t>(), 0, sum.numel(), s,
              [out](std::int64_t i, float number) { out[i] += number; });
  }

  void read(const at::Tensor& out, const at::Tensor& bits, std::int64_t first,
            const at::Tensor& scale) const override {
    auto* numbers = out.data_ptr<float>();
    for_signs(bits.const_data_ptr<std::uint8_t>(), first, out.numel(),
              *scale.const_data_ptr<float>(),
              [numbers](std::int64_t i, float number) { numbers[i] = number; });
  }
};

class AtenSigns final : public Signs {
 public:
  void compress(const at::Tensor& x, const at::Tensor& bits,
                const at::Tensor& scale) const override {
    const double root = std::sqrt(static_cast<double>(x.numel()));
    scale.copy_(at::norm(x).div(root));
    const at::Tensor plus = x.lt(0).logical_not();
    bits.copy_(plus.view({-1, 8}).to(at::kByte).mul(weights(x)).sum(1, false, at::kByte));
    x.sub_(signed_by(plus, scale));
  }

  void add(const at::Tensor& sum, const at::Tensor& bits, const at::Tensor& scale,
           int world) const override {
    sum.add_(signed_by(unpack(bits).narrow(0, 0, sum.numel()), scale / world));
  }

  void read(const at::Tensor& out, const at::Tensor& bits, std::int64_t first,
            const at::Tensor& scale) const override {
    const std::int64_t begin = first / 8, end = (first + out.numel() + 7) / 8;
    const at::Tensor plus = unpack(bits.narrow(0, begin, end - begin));
    out.copy_(signed_by(plus.narrow(0, first - begin * 8, out.numel()), scale));
  }

 private:
  static at::Tensor weights(const at::Tensor& like) {
    return at::full({8}, 2, like.options().dtype(at::kInt))
        .pow(at::arange(7, -1, -1, like.options().dtype(at::kInt)))
        .to(at::kByte);
  }
  static at::Tensor unpack(const at::Tensor& bits) {
    return bits.unsqueeze(1).bitwise_and(weights(bits)).ne(0).view(-1);
  }
  static at::Tensor signed_by(const at::Tensor& plus, const at::Tensor& scale) {
    return at::where(plus, scale, scale.neg());
  }
};

}  // namespace

const Signs& cpu_signs() {
  static const CpuSigns signs;
  return signs;
}

const Signs& aten_signs() {
  static const AtenSigns signs;
  return signs;
}

}  // namespace dsj::comm

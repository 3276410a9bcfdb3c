#include "engine/comm/signs.h"

#include <ATen/ATen.h>

#include <cmath>

namespace dsj::comm {
namespace {

bool plus(const std::uint8_t* bits, std::int64_t index) {
  return (bits[index >> 3] >> (7 - (index & 7)) & 1) != 0;
}

class CpuSigns final : public Signs {
 public:
  void compress(const at::Tensor& x, const at::Tensor& bits,
                const at::Tensor& scale) const override {
    const std::int64_t n = x.numel();
    auto* numbers = x.data_ptr<float>();
    auto* bytes = bits.data_ptr<std::uint8_t>();
    // DeepSpeed's own operations: a number near 0 may get another sign where the scale is rounded
    // otherwise.
    scale.copy_(at::norm(x).div(std::sqrt(static_cast<double>(n))));
    const float s = *scale.const_data_ptr<float>();
    for (std::int64_t i = 0; i < n; i += 8) {
      unsigned byte = 0;
      for (std::int64_t j = 0; j < 8; ++j) {
        const bool minus = numbers[i + j] < 0;
        byte = byte << 1 | (minus ? 0u : 1u);
        numbers[i + j] -= minus ? -s : s;
      }
      bytes[i / 8] = static_cast<std::uint8_t>(byte);
    }
  }

  void add(const at::Tensor& sum, const at::Tensor& bits, const at::Tensor& scale,
           int world) const override {
    const auto* bytes = bits.const_data_ptr<std::uint8_t>();
    const float s = *scale.const_data_ptr<float>() / static_cast<float>(world);
    auto* out = sum.data_ptr<float>();
    for (std::int64_t i = 0; i < sum.numel(); ++i) out[i] += plus(bytes, i) ? s : -s;
  }

  void read(const at::Tensor& out, const at::Tensor& bits, std::int64_t first,
            const at::Tensor& scale) const override {
    const auto* bytes = bits.const_data_ptr<std::uint8_t>();
    const float s = *scale.const_data_ptr<float>();
    auto* numbers = out.data_ptr<float>();
    for (std::int64_t i = 0; i < out.numel(); ++i) numbers[i] = plus(bytes, first + i) ? s : -s;
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

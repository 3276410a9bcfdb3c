// Blockwise 8-bit quantisation of optimizer states, after Dettmers et al., "8-bit Optimizers via
// Block-wise Quantization" (2022), with the numbers of bitsandbytes 0.50: a block's scale is its
// largest absolute value, and a number's code is the one whose value times the scale is nearest.
// Quantising dequantised numbers with the same scale gives the same codes. Pure, torch-free.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

namespace dsj::optim {

/// 256 values in [-1, 1], ascending, with a search for the nearest one.
class DynamicMap {
 public:
  static constexpr int kValues = 256;
  using Values = std::array<float, kValues>;
  explicit DynamicMap(const Values& values);

  /// bitsandbytes' dynamic maps, signed and unsigned: seven decades below 1, each with half as many
  /// values as the next higher one, and 0 and 1.
  static const DynamicMap& with_sign();
  static const DynamicMap& without_sign();

  const Values& values() const { return values_; }
  /// edges()[i]: the smallest fp32 number that is nearer to values()[i + 1] than to values()[i].
  const std::array<float, kValues - 1>& edges() const { return edges_; }
  /// The index of the value nearest to x in [-1, 1]; the lower one if two are equally near.
  uint8_t code(float x) const;

 private:
  Values values_;
  std::array<float, kValues - 1> edges_;
  /// [upper 16 bits of a number]: the code of the smallest number with these bits.
  std::unique_ptr<std::array<uint8_t, 65536>> first_;
};

/// Quantises a block x[n] and returns its scale. If the largest absolute value is below fp32's
/// smallest normal number, the scale is 0 and the block becomes zeros. If a number is not finite,
/// the scale and the block become NaN.
float pack_block(const DynamicMap& map, const float* x, int64_t n, uint8_t* codes);
/// The same with a given scale.
void pack_block_by(const DynamicMap& map, float scale, const float* x, int64_t n, uint8_t* codes);
/// Dequantises the block into x[n].
void unpack_block(const DynamicMap& map, float scale, const uint8_t* codes, int64_t n, float* x);

}  // namespace dsj::optim

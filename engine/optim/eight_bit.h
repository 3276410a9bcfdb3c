// Blockwise quantisation of an optimizer's states to 8 bits, after Dettmers et al., "8-bit Optimizers
// via Block-wise Quantization" (2022), with the numbers of bitsandbytes 0.50: a block's scale is its
// largest absolute value, and a number is the code whose value, times the scale, is nearest. Quantising
// what was quantised with a scale, by the same scale, gives the same codes. Pure, torch-free.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

namespace dsj::optim {

/// 256 values in [-1, 1], ascending, and which of them is nearest to a number.
class DynamicMap {
 public:
  static constexpr int kValues = 256;
  using Values = std::array<float, kValues>;
  explicit DynamicMap(const Values& values);

  /// bitsandbytes' dynamic maps, with sign and without: seven decades below 1, of which a lower one has
  /// half as many values, and 0 and 1.
  static const DynamicMap& with_sign();
  static const DynamicMap& without_sign();

  const Values& values() const { return values_; }
  /// edges()[i]: the least number that is nearer to values()[i + 1] than to values()[i], in fp32.
  const std::array<float, kValues - 1>& edges() const { return edges_; }
  /// The index of the value nearest to x in [-1, 1]; of two as near the lower one.
  uint8_t code(float x) const;

 private:
  Values values_;
  std::array<float, kValues - 1> edges_;
  /// [upper 16 bits of a number]: the code of the least number with these bits.
  std::unique_ptr<std::array<uint8_t, 65536>> first_;
};

/// Quantises a block x[n] and returns its scale. A block whose largest absolute value is below
/// fp32's least normal number has the scale 0 and is zeros; one with a number that is not finite has
/// the scale NaN and is NaN.
float pack_block(const DynamicMap& map, const float* x, int64_t n, uint8_t* codes);
/// The same by a scale that the block had before.
void pack_block_by(const DynamicMap& map, float scale, const float* x, int64_t n, uint8_t* codes);
/// The block's numbers, into x[n].
void unpack_block(const DynamicMap& map, float scale, const uint8_t* codes, int64_t n, float* x);

}  // namespace dsj::optim

// Frozen weights in 4 bits (QLoRA, Dettmers et al. 2023), by the rules of bitsandbytes 0.50. A
// block's scale is its largest absolute value, and a number's code is the one whose value times the
// scale is nearest. Two numbers share a byte; the first has the upper four bits. With two levels
// ("nested" or "double" quantisation) the scales minus their mean are stored in 8 bits by groups,
// with the numbers of eight_bit.h. bitsandbytes' mean and map differ in the last bit between
// machines, because torch's vectorised rounding differs; here both are rounded once. All else has
// the same bits. job/layout/packing.h defines the sizes of blocks and groups. Pure, torch-free.
//
// Numbers must be finite: callers refuse others and name the parameter.
#pragma once

#include <array>
#include <cstdint>

#include "engine/optim/eight_bit.h"

namespace dsj::optim {

/// NormalFloat4: [code], ascending.
inline constexpr std::array<float, 16> kNf4 = {-1.0f,
                                               -0.6961928009986877f,
                                               -0.5250730514526367f,
                                               -0.39491748809814453f,
                                               -0.28444138169288635f,
                                               -0.18477343022823334f,
                                               -0.09105003625154495f,
                                               0.0f,
                                               0.07958029955625534f,
                                               0.16093020141124725f,
                                               0.24611230194568634f,
                                               0.33791524171829224f,
                                               0.44070982933044434f,
                                               0.5626170039176941f,
                                               0.7229568362236023f,
                                               1.0f};

/// Packs x[n] into (n + 1) / 2 bytes and returns the scale. `whole`: the block has its full length.
/// A shorter one, at a parameter's end, is scaled by division and has a scale of at least 1e-38.
float pack_nf4(const float* x, int64_t n, bool whole, uint8_t* codes);
/// Unpacks the numbers into x[n].
void unpack_nf4(float scale, const uint8_t* codes, int64_t n, float* x);

/// The mean of scales[n], summed in double and rounded once.
float mean_of_scales(const float* scales, int64_t n);
/// Packs a group of scales[n], n > 0, on the second level. Returns the group's scale.
float pack_scales(const DynamicMap& map, const float* scales, int64_t n, float mean,
                  uint8_t* codes);
/// Unpacks one scale.
float unpacked_scale(const DynamicMap& map, float of_group, float mean, uint8_t code);

}  // namespace dsj::optim

// A flat's frozen weights in 4 bits (QLoRA): codes and scales by job/layout/packing.h, with the
// numbers of engine/optim/four_bit.h. Every rank has all of them. Each product unpacks the weight
// that it reads. Codes and scales are counted as parameters, all else as buckets. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "job/layout/packing.h"

namespace dsj::zero {

class PackedWeights {
 public:
  /// `type`: the type of unpacked weights.
  PackedWeights(const layout::FlatLayout& layout, at::ScalarType type, at::Device device);

  /// Reads every parameter in fp32 by `read(parameter, first element, values)` and packs it, piece
  /// by piece: only one piece at a time is in fp32. Errors: those of `read`.
  using Read = std::function<Status(const std::string&, int64_t, std::span<float>)>;
  Status fill(const Read& read);

  /// Unpacks `count` neighbours from `first` on: one in its shape, several stacked on the first
  /// dimension. Undefined if padding separates them.
  at::Tensor weight(int first, int count) const;
  /// The same result, bit for bit, by ATen operations, piece by piece; used on accelerators.
  at::Tensor weight_by_expression(int first, int count) const;

 private:
  /// Lookup tables of weight_by_expression(), on the device.
  struct Tables {
    at::Tensor pairs;   ///< [256, 2] fp32: both numbers of a byte
    at::Tensor scales;  ///< [256] fp32: a code of the second level
  };
  bool two_levels() const { return layout_.packing() == layout::Packing::Nf4TwoLevels; }
  Status fill_slot(size_t slot, const Read& read, const at::Tensor& staged,
                   const at::Tensor& codes);
  void keep_scales(size_t slot, const at::Tensor& scales);
  at::Tensor made(int64_t numel, at::ScalarType type) const;
  /// Returns the weights as one tensor, each filled by `unpack(slot, [numel])`.
  template <typename Unpack>
  at::Tensor unpacked(int first, int count, Unpack unpack) const;
  template <typename T>
  void unpack_here(size_t slot, T* out) const;
  void unpack_by_expression(size_t slot, const at::Tensor& out, const Tables& tables) const;
  Tables tables() const;

  const layout::FlatLayout& layout_;
  const at::ScalarType type_;
  const at::Device device_;
  const std::vector<layout::PackedSlot> slots_;
  at::Tensor codes_;   ///< [numel / 2] uint8
  at::Tensor scales_;  ///< [numel / block] fp32; with two levels uint8
  at::Tensor groups_;  ///< [groups] fp32; two levels only
  at::Tensor means_;   ///< [slots] fp32; two levels only
  /// On an accelerator made in the constructor, so that no step waits for a copy from the host.
  mutable std::optional<Tables> tables_;
};

}  // namespace dsj::zero

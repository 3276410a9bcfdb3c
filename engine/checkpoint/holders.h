// A compact description of where a checkpoint's tensors are stored. The manifest says which parts
// have them, so that a rank opens only the parts that it reads. ZeRO cuts a tensor into equal
// slices for consecutive ranks, so a few lines describe a tensor for any number of ranks.
// Tested by: tests/engine/checkpoint/holders_test.cc
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::checkpoint {

/// A whole tensor of a checkpoint: one state ("master", "exp_avg" ...) of one parameter.
struct Extent {
  std::string state;
  std::string param;
  int64_t elements = 0;
  bool operator==(const Extent&) const = default;
};

/// `count` parts from `part` on have `length` elements of a tensor each, consecutively, starting at
/// element `offset`.
struct Holders {
  int64_t offset = 0, length = 0;
  int part = 0, count = 1;
  int64_t end() const { return offset + length * count; }
  bool operator==(const Holders&) const = default;
};

/// Elements [offset, offset + length) of tensor number `extent` are in part `part`.
struct HeldRange {
  int32_t extent = 0, part = 0;
  int64_t offset = 0, length = 0;
};

/// The holders of each extent, in order. Errors: Internal, with tensor and element, if the ranges
/// do not cover every extent exactly. `where` goes into the error.
Result<std::vector<std::vector<Holders>>> holders_of(std::span<const Extent> extents,
                                                     std::vector<HeldRange> ranges,
                                                     const std::string& where);

/// The part that has element `offset`. Precondition: the holders' tensor has it.
int part_of(std::span<const Holders> holders, int64_t offset);

/// Whether the holders cover [0, elements) in order, by parts of [0, world). For validation.
bool covers(std::span<const Holders> holders, int64_t elements, int world);

}  // namespace dsj::checkpoint

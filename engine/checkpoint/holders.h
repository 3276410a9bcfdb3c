// Where a checkpoint's tensors lie, in few words: the manifest says which parts hold them, so that
// a rank opens only the parts that it reads. ZeRO deals a tensor in equal slices to neighbouring
// ranks, so a handful of lines describes a tensor at any number of ranks.
// Tested by: tests/engine/checkpoint/holders_test.cc
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::checkpoint {

/// A tensor that a checkpoint holds whole: one state ("master", "exp_avg" ...) of one parameter.
struct Extent {
  std::string state;
  std::string param;
  int64_t elements = 0;
  bool operator==(const Extent&) const = default;
};

/// `count` parts from `part` on hold `length` elements of a tensor each, one behind the other, the
/// first from element `offset` on.
struct Holders {
  int64_t offset = 0, length = 0;
  int part = 0, count = 1;
  int64_t end() const { return offset + length * count; }
  bool operator==(const Holders&) const = default;
};

/// Elements [offset, offset + length) of tensor number `extent` lie in part `part`.
struct HeldRange {
  int32_t extent = 0, part = 0;
  int64_t offset = 0, length = 0;
};

/// The holders of each extent, in order. Internal, naming tensor and element: the ranges do not
/// cover every extent exactly. `where` goes into the error.
Result<std::vector<std::vector<Holders>>> holders_of(std::span<const Extent> extents,
                                                     std::vector<HeldRange> ranges,
                                                     const std::string& where);

/// The part that holds element `offset`. Precondition: `holders` are of a tensor that has it.
int part_of(std::span<const Holders> holders, int64_t offset);

/// Whether they cover [0, elements) in order, by parts of [0, world). For holders that were read.
bool covers(std::span<const Holders> holders, int64_t elements, int world);

}  // namespace dsj::checkpoint

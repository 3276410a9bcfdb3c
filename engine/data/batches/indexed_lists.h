// Lists of whole numbers in two files, PREFIX.idx and PREFIX.bin, as DeepSpeed's data analyzer writes
// them ("MMIDIDX"): lengths and places in the one, the numbers in the other.
// Foreign bytes: any input may be refused, none may be believed. Used for the files of a curriculum
// by a metric.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

/// Lists one behind the other.
struct Lists {
  std::vector<int64_t> values;
  std::vector<int64_t> starts = {0};  ///< [count + 1]: where each begins in `values`
  int64_t count() const { return static_cast<int64_t>(starts.size()) - 1; }
  std::span<const int64_t> list(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    return std::span(values).subspan(static_cast<size_t>(starts[at]),
                                     static_cast<size_t>(starts[at + 1] - starts[at]));
  }
  void add(std::span<const int64_t> list);
};

/// Any whole numbers that an int64 holds, of every type that a version of DeepSpeed writes; also of
/// the float types, where every number is whole. BadInput: a file is missing, or is no such file.
Result<Lists> read_lists(Files& files, const std::string& prefix);

/// Writes both files, each whole or not at all. The numbers are int32, or int64 where one needs it:
/// these two types have the same code in every version of DeepSpeed.
Status write_lists(Files& files, const std::string& prefix, const Lists& lists);

}  // namespace dsj::data

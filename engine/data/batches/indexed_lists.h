// Lists of integers in two files, PREFIX.idx and PREFIX.bin, as written by DeepSpeed's data
// analyzer ("MMIDIDX"): lengths and offsets in .idx, the numbers in .bin. Used for the files of
// a curriculum by metrics. The files are untrusted: any input may be refused, none may crash
// the reader.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

/// Concatenated lists.
struct Lists {
  std::vector<int64_t> values;
  std::vector<int64_t> starts = {0};  ///< [count + 1]: start of each list in `values`
  int64_t count() const { return static_cast<int64_t>(starts.size()) - 1; }
  std::span<const int64_t> list(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    return std::span(values).subspan(static_cast<size_t>(starts[at]),
                                     static_cast<size_t>(starts[at + 1] - starts[at]));
  }
  void add(std::span<const int64_t> list);
};

/// Reads integers of every type that a version of DeepSpeed writes, if they fit int64; also float
/// types if every number is whole. Errors: BadInput if a file is missing or is not such a file.
Result<Lists> read_lists(Files& files, const std::string& prefix);

/// Writes both files atomically. The numbers are int32, or int64 if one needs it: these two
/// types have the same code in every version of DeepSpeed.
Status write_lists(Files& files, const std::string& prefix, const Lists& lists);

}  // namespace dsj::data

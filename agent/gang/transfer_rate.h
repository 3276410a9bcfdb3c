// How fast a transfer was, as its receiver saw it. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace dsj::agent {

struct Transfer {
  int64_t bytes = 0, microseconds = 0;  ///< of all of it
  int64_t slice_bytes = 0;
  std::vector<int64_t> slices;  ///< microseconds of each whole slice
};

/// Bytes per second, at least 1. With enough slices it is that of the middle one: a pause of a busy
/// machine hits few of them, a slow link all.
int64_t rate_of(const Transfer& transfer);

}  // namespace dsj::agent

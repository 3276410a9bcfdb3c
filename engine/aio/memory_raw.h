// A file in memory for tests: a full implementation, plus the faults of a device.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/aio/threaded_file.h"

namespace dsj::aio {

/// One call on the device.
struct RawCall {
  int64_t number = 0;  ///< from 0, in the order of arrival
  bool write = false;
  int64_t offset = 0, bytes = 0;
};

/// What the call must return: -errno, or a number of bytes, which are moved; nullopt: all of them.
/// It may sleep, as latency. Any thread.
using RawFault = std::function<std::optional<int64_t>(const RawCall&)>;

/// A file of `size` zero bytes.
std::unique_ptr<RawFile> raw_memory(int64_t size, RawFault fault = {});

}  // namespace dsj::aio

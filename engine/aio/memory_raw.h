// An in-memory file for tests: a full implementation, with a device's faults.
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
  int64_t number = 0;  ///< from 0, in order of arrival
  bool write = false;
  int64_t offset = 0, bytes = 0;
};

/// The call's result: -errno, or a number of bytes, which are moved; nullopt for all bytes. It may
/// sleep, to simulate latency. Any thread.
using RawFault = std::function<std::optional<int64_t>(const RawCall&)>;

/// A file of `size` zero bytes.
std::unique_ptr<RawFile> raw_memory(int64_t size, RawFault fault = {});

}  // namespace dsj::aio

// A summary of an operation. Ranks compare frames before they move data, so that ranks which call
// different operations get an error that says so. Internal to comm.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/comm/transport.h"

namespace dsj::comm {

struct Frame {
  std::uint32_t magic = 0x44534a31;
  std::uint8_t kind = 0;
  std::uint8_t op = 0;
  std::uint16_t root = 0;
  std::uint32_t chunks = 0;
  std::uint32_t shape = 0;  ///< a hash of the chunks' sizes and dtypes
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;  ///< sum over chunks of the larger of in and out
  char unit[32] = {};       ///< truncated label, zero-terminated; for messages only
};
static_assert(sizeof(Frame) == 64 && std::is_trivially_copyable_v<Frame>);

Frame frame_of(const Request& request);
/// Throws TransportError if `theirs` is not the same operation as `mine`.
void check_frame(const Frame& mine, const Frame& theirs, int their_rank);

}  // namespace dsj::comm

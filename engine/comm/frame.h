// An operation in brief. Ranks compare frames before they move data, so that a different order of
// calls is reported as such. Internal to comm.
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
  std::uint64_t bytes = 0;  ///< of the chunks' larger sides
  char unit[32] = {};       ///< the label's beginning, zero-terminated; for messages only
};
static_assert(sizeof(Frame) == 64 && std::is_trivially_copyable_v<Frame>);

Frame frame_of(const Request& request);
/// Throws TransportError if `theirs` is not the same operation as `mine`.
void check_frame(const Frame& mine, const Frame& theirs, int their_rank);

}  // namespace dsj::comm

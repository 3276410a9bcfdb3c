#include "engine/comm/frame.h"

#include <algorithm>
#include <string>

namespace dsj::comm {
namespace {

std::string describe(const Frame& frame) {
  std::string text =
      std::string(name_of(static_cast<Kind>(frame.kind))) + " #" + std::to_string(frame.sequence);
  if (frame.unit[0] != '\0') text += std::string(" (") + frame.unit + ")";
  return text + " of " + std::to_string(frame.bytes) + " bytes in " + std::to_string(frame.chunks) +
         " chunks";
}

}  // namespace

Frame frame_of(const Request& request) {
  Frame frame;
  frame.kind = static_cast<std::uint8_t>(request.kind);
  frame.op = static_cast<std::uint8_t>(request.op);
  frame.root = static_cast<std::uint16_t>(request.root);
  frame.chunks = static_cast<std::uint32_t>(request.chunks.size());
  frame.sequence = request.sequence;
  const auto mix = [&](std::uint64_t value) {
    frame.shape = static_cast<std::uint32_t>((frame.shape ^ value ^ (value >> 32)) * 0x9e3779b1u);
  };
  for (const ChunkPair& chunk : request.chunks) {
    const std::uint64_t bytes = std::max(chunk.out.nbytes(), chunk.in.nbytes());
    frame.bytes += bytes;
    mix(bytes);
    mix(static_cast<std::uint64_t>(chunk.out.scalar_type()));
  }
  request.unit.copy(frame.unit, sizeof frame.unit - 1);
  return frame;
}

void check_frame(const Frame& mine, const Frame& theirs, int their_rank) {
  const std::string rank = "rank " + std::to_string(their_rank);
  if (theirs.magic != mine.magic || theirs.kind >= kKindCount) {
    throw TransportError(rank + " sent something that is not an operation");
  }
  const bool same = theirs.kind == mine.kind && theirs.op == mine.op && theirs.root == mine.root &&
                    theirs.chunks == mine.chunks && theirs.shape == mine.shape &&
                    theirs.sequence == mine.sequence && theirs.bytes == mine.bytes;
  if (same) return;
  Frame shown = theirs;
  shown.unit[sizeof shown.unit - 1] = '\0';
  throw TransportError("it does not match " + rank + "'s: " + describe(shown) +
                       "; here: " + describe(mine));
}

}  // namespace dsj::comm

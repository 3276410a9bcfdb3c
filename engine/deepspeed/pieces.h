// Reads a saved tensor piece by piece. Internal to engine/deepspeed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/saved_run.h"

namespace dsj::deepspeed {

/// Reads a tensor in order, in pieces of at most 16 MiB, and passes each to `take(offset, values)`.
inline Status for_pieces(checkpoint::SavedRun& from, const std::string& state,
                         const std::string& name, int64_t elements,
                         const std::function<Status(int64_t, std::span<const float>)>& take) {
  constexpr int64_t kPieceElements = 4 << 20;
  std::vector<float> buffer(size_t(std::min(elements, kPieceElements)));
  for (int64_t offset = 0; offset < elements; offset += kPieceElements) {
    const auto piece = std::span(buffer).first(size_t(std::min(kPieceElements, elements - offset)));
    DSJ_TRY_STATUS(from.read(state, name, offset, piece));
    DSJ_TRY_STATUS(take(offset, piece));
  }
  return {};
}

}  // namespace dsj::deepspeed

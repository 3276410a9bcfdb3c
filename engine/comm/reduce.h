// Elementwise reduction of several arrays, for the ring and shm backends.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

#include "engine/comm/collectives.h"

namespace dsj::comm {

/// out[i] = sources[0][i] (op) sources[1][i] (op) ..., in this order, for i < n. 16-bit types are
/// accumulated in fp32 and rounded once, to nearest even. Max propagates NaN. `out` may be one of
/// the sources; no other overlap is allowed. The vector and the plain path round alike, so the bits
/// are the same on every machine.
void reduce(void* out, std::span<const void* const> sources, std::int64_t n, at::ScalarType dtype,
            Op op);

/// The plain path, for tests.
void reduce_portable(void* out, std::span<const void* const> sources, std::int64_t n,
                     at::ScalarType dtype, Op op);

}  // namespace dsj::comm

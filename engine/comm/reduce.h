// Element-wise reduction of several arrays, the arithmetic of the ring and shm backends.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

#include "engine/comm/collectives.h"

namespace dsj::comm {

/// out[i] = sources[0][i] (op) sources[1][i] (op) ..., in this order, i < n. 16-bit types are
/// accumulated in float32 and rounded once, to nearest even. Max keeps a NaN of any source. `out`
/// may be one of the sources; it overlaps none otherwise. The same bits on every machine: the
/// vector path rounds as the plain one does.
void reduce(void* out, std::span<const void* const> sources, std::int64_t n, at::ScalarType dtype,
            Op op);

/// The plain path, for tests.
void reduce_portable(void* out, std::span<const void* const> sources, std::int64_t n,
                     at::ScalarType dtype, Op op);

}  // namespace dsj::comm

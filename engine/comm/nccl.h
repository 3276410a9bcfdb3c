// NCCL on one GPU per rank, straight on its C API. Compiled only with -DDSJ_CUDA=ON.
//
// Operations run on a stream of their own, after what the issuing thread's current stream holds at
// the time of the call. A watchdog thread sees when they are done, asks NCCL for errors, and aborts
// the communicator when an operation's time is over, which also ends its kernels.
#pragma once

#include <memory>

#include "common/result.h"
#include "engine/comm/collectives.h"
#include "engine/comm/rendezvous.h"

namespace dsj::comm {

/// Collective. options.device is this rank's GPU (an index, else the current one). Environment: no
/// such GPU, or NCCL refuses. Transient: the ranks did not connect in time.
Result<std::unique_ptr<Collectives>> make_nccl(Rendezvous& rendezvous);

}  // namespace dsj::comm

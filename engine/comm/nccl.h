// NCCL on one GPU per rank, through its C API. Compiled into libdsj_cuda.so alone
// (engine/cuda/plugin.h), which provides it to make_collectives().
//
// NCCL brings the operations; order, memory, timeouts and failures are streamed.h's. Each lane has a
// communicator: NCCL runs the operations of one in their order.
#pragma once

#include <memory>

#include "common/result.h"
#include "engine/comm/collectives.h"
#include "engine/comm/rendezvous.h"

namespace dsj::comm {

/// Collective. options.device is this rank's GPU; without an index, the current one. Environment:
/// there is no such GPU, or NCCL refuses. Transient: the ranks did not connect in time. Throws
/// DeviceMemoryError.
Result<std::unique_ptr<Collectives>> make_nccl(Rendezvous& rendezvous);

using MakeNccl = Result<std::unique_ptr<Collectives>> (*)(Rendezvous& rendezvous);
/// From now on make_collectives() makes groups for CUDA tensors by this. Before the first such
/// group.
void provide_nccl(MakeNccl make);

}  // namespace dsj::comm

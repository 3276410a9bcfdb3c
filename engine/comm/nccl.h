// NCCL on one GPU per rank, through its C API. Compiled only into libdsj_cuda.so
// (engine/cuda/plugin.h), which provides it to make_collectives().
//
// NCCL provides the operations; streamed.h handles order, memory, timeouts and failures. Each lane
// has a communicator, because NCCL runs the operations of one communicator in order.
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
/// Makes make_collectives() use `make` for CUDA tensors. Call it before the first such group is
/// made.
void provide_nccl(MakeNccl make);

}  // namespace dsj::comm

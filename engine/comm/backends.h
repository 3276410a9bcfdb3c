// The CPU backends. Each is collective over all ranks of the rendezvous. Internal to the room.
#pragma once

#include <memory>

#include "common/result.h"
#include "engine/comm/rendezvous.h"
#include "engine/comm/transport.h"

namespace dsj::comm {

/// c10d's ProcessGroupGloo: the oracle of the others. An interrupt is heard only when the operation
/// under way has ended or timed out.
Result<std::unique_ptr<Transport>> make_gloo(Rendezvous& rendezvous);

/// Shared memory, for ranks on one host that see each other's processes. Environment: that is not
/// so; the same verdict on every rank, and the group can go on with another backend.
Result<std::unique_ptr<Transport>> make_shm(Rendezvous& rendezvous);

/// Our own TCP ring: any number of ranks on any hosts.
Result<std::unique_ptr<Transport>> make_ring(Rendezvous& rendezvous);

}  // namespace dsj::comm

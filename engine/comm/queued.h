// Collectives over a Transport: a queue, one thread, and the memory of the first failure.
#pragma once

#include <memory>

#include "engine/comm/collectives.h"
#include "engine/comm/transport.h"

namespace dsj::comm {

/// Never fails. `timeout` is of each operation, from its start on the thread.
std::unique_ptr<Collectives> make_queued(std::unique_ptr<Transport> transport, int rank, int world,
                                         std::chrono::milliseconds timeout);

}  // namespace dsj::comm

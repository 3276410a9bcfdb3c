// Collectives over a Transport: a queue, one thread, and the first failure.
#pragma once

#include <memory>

#include "engine/comm/collectives.h"
#include "engine/comm/transport.h"

namespace dsj::comm {

/// Never fails. `timeout`: per operation, from when the thread starts it.
std::unique_ptr<Collectives> make_queued(std::unique_ptr<Transport> transport, int rank, int world,
                                         std::chrono::milliseconds timeout);

}  // namespace dsj::comm

// Makes Collectives of a Transport: a queue, a thread, and the first failure.
#pragma once

#include <memory>

#include "engine/comm/collectives.h"
#include "engine/comm/transport.h"

namespace dsj::comm {

/// Never fails. `timeout`: per operation, from its start on the thread.
std::unique_ptr<Collectives> make_queued(std::unique_ptr<Transport> transport, int rank, int world,
                                         std::chrono::milliseconds timeout);

}  // namespace dsj::comm

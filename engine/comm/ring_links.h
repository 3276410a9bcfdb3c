// The ring's sockets: to the next rank and from the previous one. Internal to comm.
#pragma once

#include "common/result.h"
#include "engine/comm/fd.h"
#include "engine/comm/rendezvous.h"

namespace dsj::comm {

/// All are connected and non-blocking.
struct RingLinks {
  Fd to_next;
  Fd from_prev;
  Fd next_reason;  ///< idle; a leaving rank sends its reason here
  Fd prev_reason;
};

/// Collective. Listens on the interface that leads to the master. The store carries the addresses
/// and a random word by which strangers are recognised. Transient: a neighbour did not connect.
Result<RingLinks> connect_ring(Rendezvous& rendezvous);

}  // namespace dsj::comm

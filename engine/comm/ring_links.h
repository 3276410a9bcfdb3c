// The sockets of the ring: to the next rank and from the previous one. Internal to the room.
#pragma once

#include "common/result.h"
#include "engine/comm/fd.h"
#include "engine/comm/rendezvous.h"

namespace dsj::comm {

/// All connected and non-blocking.
struct RingLinks {
  Fd to_next;
  Fd from_prev;
  Fd next_words;  ///< both ways, idle: a rank that leaves says why, before it closes
  Fd prev_words;
};

/// Collective. Listens on the interface that leads to the master; addresses and a random word that
/// a stranger does not know travel by the store. Transient: a neighbour did not connect in time.
Result<RingLinks> connect_ring(Rendezvous& rendezvous);

}  // namespace dsj::comm

// Makes groups from a rendezvous: the CPU backends. Each maker is collective over all ranks of
// the rendezvous. Internal to comm.
#pragma once

#include <memory>

#include "common/result.h"
#include "engine/comm/rendezvous.h"
#include "engine/comm/slice_transport.h"
#include "engine/comm/transport.h"
#include "job/collective_way.h"

namespace dsj::comm {

/// c10d's ProcessGroupGloo, the oracle of the other backends. An interrupt takes effect only when
/// the running operation ends or times out.
Result<std::unique_ptr<Transport>> make_gloo(Rendezvous& rendezvous);

/// Shared memory, for ranks on one host that see each other's processes. Environment: they do not,
/// or the memory cannot be allocated. Every rank gets the same verdict, so the caller may try
/// another backend.
Result<std::unique_ptr<SliceTransport>> make_shm(Rendezvous& rendezvous);

/// A TCP ring for any number of ranks on any hosts.
Result<std::unique_ptr<SliceTransport>> make_ring(Rendezvous& rendezvous);

/// Two levels: shared memory within each host, rings between hosts. Environment: as make_shm on any
/// host; the same verdict on every rank.
Result<std::unique_ptr<Transport>> make_hierarchical(Rendezvous& rendezvous,
                                                     const Topology& topology);

/// The part of make_collectives() after the ranks have a store: agrees on the backend, connects the
/// ranks and finishes the rendezvous. Collective. Errors: as make_collectives().
Result<std::unique_ptr<Collectives>> join(Rendezvous& rendezvous);

}  // namespace dsj::comm

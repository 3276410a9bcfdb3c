// Which way collectives go on a CPU: through shared memory, along one ring, or in two levels; and how
// many bytes then go from host to host. One decision, from the host of each rank alone: engine/comm
// takes it, dsj plan tells it. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace dsj {

enum class Way {
  Shared,  ///< one host: shared memory
  Flat,    ///< one TCP ring over all ranks
  Levels,  ///< shared memory within a host, a TCP ring between the ranks of one place on each host
};

struct Topology {
  Way way = Way::Flat;
  int hosts = 1;        ///< Levels: rank = host * each + place on the host
  int each = 1;         ///< ranks per host; Flat: 1, each rank counts as a host
  std::string because;  ///< "2 hosts of 4 ranks", "hosts of 3 and 5 ranks"
};

/// "shared memory", "one ring", "two levels".
const char* name_of(Way way);

/// `hosts`: the name of each rank's host, in rank order; "-": not known, and like no other.
/// Two levels need hosts with equally many consecutive ranks, at least two each. There a host sends
/// n (hosts-1)/hosts of n bytes to other hosts, which is the least that all_gather and
/// reduce_scatter can do; the ring sends n (world-1)/world.
Topology topology_of(std::span<const std::string> hosts);
/// The same for `pods` of `ranks` each: a pod is a host, because the ranks of two pods of one node do
/// not see each other's processes.
Topology topology_of_pods(int pods, int ranks);

/// Bytes that a host sends to other hosts while each rank sends `bytes` by the ring's formulas
/// (comm::Counters): in an all_gather, a reduce_scatter or an all_reduce. Of a flat ring as of
/// consecutive ranks: each host's last rank sends to another host.
int64_t between_hosts(const Topology& topology, int64_t bytes);
/// The same for an all_to_all, in which what is not for a neighbour is handed on.
int64_t between_hosts_of_all_to_all(const Topology& topology, int64_t bytes);

/// One line for the ranks, and back. parse_topology() takes what text_of() made.
std::string text_of(const Topology& topology);
Topology parse_topology(const std::string& text);

}  // namespace dsj

// Chooses how collectives travel on a CPU: shared memory, one ring, or two levels. Counts the bytes
// that hosts then send to each other. The choice depends only on the host of each rank. engine/comm
// uses it, dsj plan shows it. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace dsj {

enum class Way {
  Shared,  ///< one host: shared memory
  Flat,    ///< one TCP ring over all ranks
  Levels,  ///< shared memory within a host; a TCP ring over the ranks of equal index on each host
};

struct Topology {
  Way way = Way::Flat;
  int hosts = 1;        ///< Levels: rank = host * each + index on the host
  int each = 1;         ///< ranks per host; Flat: 1, each rank counts as a host
  std::string because;  ///< "2 hosts of 4 ranks", "hosts of 3 and 5 ranks"
};

/// "shared memory", "one ring", "two levels".
const char* name_of(Way way);

/// `hosts`: the host name of each rank, in rank order; "-" if unknown, which equals no other host.
/// Two levels need hosts with equally many consecutive ranks, at least two each. Each host then
/// sends n (hosts-1)/hosts of n bytes, the minimum for all_gather and reduce_scatter. The ring
/// sends n (world-1)/world.
Topology topology_of(std::span<const std::string> hosts);
/// The same for `pods` of `ranks` each. A pod counts as a host, because ranks in two pods of one
/// node do not see each other's processes.
Topology topology_of_pods(int pods, int ranks);

/// Bytes that a host sends to other hosts in an all_gather, reduce_scatter or all_reduce in which
/// each rank sends `bytes` by the ring's formulas (comm::Counters). For a flat ring, ranks of a
/// host count as consecutive: only the last one sends to another host.
int64_t between_hosts(const Topology& topology, int64_t bytes);
/// The same for an all_to_all, in which a rank forwards what is not for its neighbour.
int64_t between_hosts_of_all_to_all(const Topology& topology, int64_t bytes);

/// A topology as one line of text for the ranks. parse_topology() reads what text_of() wrote.
std::string text_of(const Topology& topology);
Topology parse_topology(const std::string& text);

}  // namespace dsj

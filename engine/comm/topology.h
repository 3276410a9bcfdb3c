// Which way collectives go on a CPU: through shared memory, along one ring, or in two levels. One
// decision, from the host of each rank alone. Internal to comm.
// Tested by: tests/engine/comm/topology_test.cc
#pragma once

#include <span>
#include <string>

namespace dsj::comm {

enum class Way {
  Shared,  ///< one host: shared memory
  Flat,    ///< one TCP ring over all ranks
  Levels,  ///< shared memory within a host, a TCP ring between the ranks of one place on each host
};

struct Topology {
  Way way = Way::Flat;
  int hosts = 1;        ///< Levels: rank = host * each + place on the host
  int each = 1;         ///< ranks per host
  std::string because;  ///< "2 hosts of 4 ranks", "hosts of 3 and 5 ranks"
};

/// `hosts`: the name of each rank's host, in rank order; "-": not known, and like no other.
/// Two levels need hosts with equally many consecutive ranks, at least two each. There a host sends
/// n (hosts-1)/hosts of n bytes to other hosts, which is the least that all_gather and
/// reduce_scatter can do; the ring sends n (world-1)/world.
Topology topology_of(std::span<const std::string> hosts);

/// One line for the ranks, and back. parse() takes what text_of() made.
std::string text_of(const Topology& topology);
Topology parse_topology(const std::string& text);

}  // namespace dsj::comm

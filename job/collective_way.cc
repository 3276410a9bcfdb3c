#include "job/collective_way.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

namespace dsj {
namespace {

/// The number of ranks on each host. Empty if the ranks of some host are not consecutive.
std::vector<int> ranks_per_host(std::span<const std::string> hosts) {
  std::vector<int> runs;
  std::set<std::string> seen;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const bool known = hosts[rank] != "-";
    if (known && rank > 0 && hosts[rank] == hosts[rank - 1]) {
      ++runs.back();
      continue;
    }
    if (known && !seen.insert(hosts[rank]).second) return {};
    runs.push_back(1);
  }
  return runs;
}

}  // namespace

Topology topology_of(std::span<const std::string> hosts) {
  const std::vector<int> runs = ranks_per_host(hosts);
  const int world = static_cast<int>(hosts.size());
  if (runs.empty()) return {.hosts = world, .because = "the ranks of a host are not consecutive"};
  const auto [least, most] = std::ranges::minmax(runs);
  const int count = static_cast<int>(runs.size());
  if (count == 1) return {Way::Shared, 1, most, "all ranks on one host"};
  if (most == 1) return {Way::Flat, count, 1, "one rank per host"};
  if (least != most) {
    return {
        .hosts = world,
        .because = "hosts of " + std::to_string(least) + " and " + std::to_string(most) + " ranks"};
  }
  return {Way::Levels, count, most,
          std::to_string(count) + " hosts of " + std::to_string(most) + " ranks"};
}

const char* name_of(Way way) {
  switch (way) {
    case Way::Shared:
      return "shared memory";
    case Way::Flat:
      return "one ring";
    case Way::Levels:
      break;
  }
  return "two levels";
}

Topology topology_of_pods(int pods, int ranks) {
  std::vector<std::string> hosts;
  for (int rank = 0; rank < pods * ranks; ++rank) {
    hosts.push_back("pod " + std::to_string(rank / ranks));
  }
  return topology_of(hosts);
}

int64_t between_hosts(const Topology& topology, int64_t bytes) {
  const int64_t hosts = topology.hosts, world = hosts * topology.each;
  if (topology.way == Way::Shared) return 0;
  if (topology.way == Way::Flat) return bytes;
  return bytes / (world - 1) * (hosts - 1) * topology.each +
         bytes % (world - 1) * (hosts - 1) * topology.each / (world - 1);
}

int64_t between_hosts_of_all_to_all(const Topology& topology, int64_t bytes) {
  const int64_t hosts = topology.hosts, world = hosts * topology.each;
  if (topology.way == Way::Shared) return 0;
  // A rank sends bytes / (world - 1) to each other rank. Each message passes one link per step of
  // distance: world (world - 1) / 2 links in all.
  if (topology.way == Way::Flat) return bytes * world / 2;
  return between_hosts(topology, bytes) * world / 2;
}

std::string text_of(const Topology& topology) {
  return std::to_string(static_cast<int>(topology.way)) + " " + std::to_string(topology.hosts) +
         " " + std::to_string(topology.each) + " " + topology.because;
}

Topology parse_topology(const std::string& text) {
  std::istringstream fields(text);
  Topology topology;
  int way = 0;
  fields >> way >> topology.hosts >> topology.each >> std::ws;
  topology.way = static_cast<Way>(way);
  std::getline(fields, topology.because);
  return topology;
}

}  // namespace dsj

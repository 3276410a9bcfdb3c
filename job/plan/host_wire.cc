#include "job/plan/host_wire.h"

#include <algorithm>
#include <string>
#include <vector>

namespace dsj::plan {
namespace {

/// Bytes between hosts for a topology, from the bytes that a rank sends (job/collective_way.h).
using BetweenHosts = int64_t (*)(const Topology&, int64_t);

/// Adds to sent[host] the bytes that each host sends to others while every rank of a group sends
/// `bytes` in it. `ranks`: the group. `each`: ranks per host.
void add_group(const std::vector<int>& ranks, int each, int64_t bytes, BetweenHosts between,
               std::vector<int64_t>& sent) {
  std::vector<std::string> hosts;
  for (const int rank : ranks) hosts.push_back(std::to_string(rank / each));
  const Topology way = topology_of(hosts);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int host = ranks[i] / each;
    const bool leaves = ranks[(i + 1) % ranks.size()] / each != host;  // the last rank of a host
    if (leaves) sent[static_cast<size_t>(host)] += between(way, bytes);
  }
}

/// The most that a host sends while every rank sends `bytes` in its group. Groups are `size`
/// consecutive ranks or, with `places`, the ranks of equal index in these.
int64_t in_groups(int hosts, int each, int size, bool places, int64_t bytes,
                  BetweenHosts between = between_hosts) {
  const int world = hosts * each, count = places ? size : world / size;
  std::vector<int64_t> sent(static_cast<size_t>(hosts), 0);
  for (int group = 0; group < count; ++group) {
    std::vector<int> ranks;
    for (int rank = 0; rank < world; ++rank)
      if ((places ? rank % size : rank / size) == group) ranks.push_back(rank);
    if (ranks.size() > 1) add_group(ranks, each, bytes, between, sent);
  }
  return std::ranges::max(sent);
}

}  // namespace

HostWire bytes_between_hosts(const WireCount& wire, const Topology& topology) {
  // An all_to_all sends one half of the momenta, a gather the other (OneBitPlan::wire_bytes).
  const int64_t half = wire.momentum_bytes / 2;
  const int64_t exchanged = wire.exchanged_gradient_bytes;
  return {.gradients = between_hosts(topology, wire.gradient_bytes - exchanged) +
                       between_hosts_of_all_to_all(topology, exchanged),
          .parameters = between_hosts(topology, wire.parameter_bytes),
          .later_parameters = between_hosts(topology, wire.later_parameter_bytes),
          .matrices = between_hosts(topology, wire.matrix_bytes),
          .momenta = between_hosts_of_all_to_all(topology, half) + between_hosts(topology, half)};
}

HostWire bytes_between_hosts(const WireCount& wire, int hosts, int each, const RankGroups& groups) {
  const int64_t heads =
      in_groups(hosts, each, groups.sequence, false, wire.head_bytes, between_hosts_of_all_to_all);
  if (!groups.parts_flats()) {
    HostWire sent = bytes_between_hosts(wire, topology_of_pods(hosts, each));
    sent.heads = heads;
    return sent;
  }
  const auto cut = [&](int64_t bytes) {
    return in_groups(hosts, each, groups.shards, false, bytes);
  };
  HostWire sent{.gradients = cut(wire.gradient_bytes - wire.gradient_bytes_over_groups -
                                 wire.near_gradient_bytes),
                .parameters = cut(wire.parameter_bytes - wire.near_parameter_bytes),
                .matrices = cut(wire.matrix_bytes),
                .heads = heads};
  if (groups.rails) {
    sent.gradients += in_groups(hosts, each, groups.near, false, wire.near_gradient_bytes,
                                between_hosts_of_all_to_all) +
                      in_groups(hosts, each, groups.near, true, wire.gradient_bytes_over_groups,
                                between_hosts_of_all_to_all);
  } else {
    sent.gradients += in_groups(hosts, each, groups.shards, true, wire.gradient_bytes_over_groups);
  }
  if (groups.near > 0)
    sent.parameters += in_groups(hosts, each, groups.near, false, wire.near_parameter_bytes);
  return sent;
}

}  // namespace dsj::plan

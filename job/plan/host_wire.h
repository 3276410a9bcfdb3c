// Bytes between hosts in a step: the bytes on the wire (memory_model.h) by the way of the
// collectives (job/collective_way.h). `dsj plan` calls it. Pure.
#pragma once

#include <cstdint>

#include "job/collective_way.h"
#include "job/plan/memory_model.h"
#include "job/plan/rank_groups.h"

namespace dsj::plan {

/// Bytes that one host sends to others per optimizer step. As in WireCount, a compressed step sends
/// momenta instead of gradients.
struct HostWire {
  int64_t gradients = 0, parameters = 0;
  int64_t later_parameters = 0;  ///< after the freeze of a 1-bit optimizer
  int64_t matrices = 0, momenta = 0;
  int64_t heads = 0;
};

/// For ranks without groups.
HostWire bytes_between_hosts(const WireCount& wire, const Topology& topology);
/// For `hosts` of `each` consecutive ranks, in groups. The host that sends most.
HostWire bytes_between_hosts(const WireCount& wire, int hosts, int each, const RankGroups& groups);

}  // namespace dsj::plan

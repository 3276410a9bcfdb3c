// What goes from host to host in a step: the wire's bytes (memory_model.h) by the way that collectives
// take (job/collective_way.h). Called by `dsj plan`. Pure.
#pragma once

#include <cstdint>

#include "job/collective_way.h"
#include "job/plan/memory_model.h"
#include "job/plan/rank_groups.h"

namespace dsj::plan {

/// Bytes that one host sends to others per optimizer step. As in WireCount, momenta go in place of
/// gradients.
struct HostWire {
  int64_t gradients = 0, parameters = 0;
  int64_t later_parameters = 0;  ///< behind the freeze of a 1-bit optimizer
  int64_t matrices = 0, momenta = 0;
  int64_t heads = 0;
};

/// Of ranks without groups.
HostWire bytes_between_hosts(const WireCount& wire, const Topology& topology);
/// `hosts` of `each` consecutive ranks, in groups. Of the host that sends most.
HostWire bytes_between_hosts(const WireCount& wire, int hosts, int each, const RankGroups& groups);

}  // namespace dsj::plan

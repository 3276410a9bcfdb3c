#include "job/plan/host_wire.h"

namespace dsj::plan {

HostWire bytes_between_hosts(const WireCount& wire, const Topology& topology) {
  // Of the momenta one half is dealt by an all_to_all, the other gathered (OneBitPlan::wire_bytes).
  const int64_t half = wire.momentum_bytes / 2;
  return {.gradients = between_hosts(topology, wire.gradient_bytes),
          .parameters = between_hosts(topology, wire.parameter_bytes),
          .later_parameters = between_hosts(topology, wire.later_parameter_bytes),
          .matrices = between_hosts(topology, wire.matrix_bytes),
          .momenta = between_hosts_of_all_to_all(topology, half) + between_hosts(topology, half)};
}

}  // namespace dsj::plan

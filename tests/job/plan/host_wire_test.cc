#include "job/plan/host_wire.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/job/layout/llama_70b.h"

namespace dsj::plan {
namespace {

using testing_support::llama_70b;

/// docs/reports/scale.md has what this prints.
TEST(HostWire, OfLlama70bAtThousandsOfRanks) {
  dsconfig::ResolvedConfig config;
  config.precision = dsconfig::Precision::Bf16;
  config.zero.stage = 3;
  for (const int pods : {8, 64, 512}) {
    const int world = pods * 8;
    const WireCount wire =
        memory_model({.model = llama_70b(), .config = config, .world = world}).wire;
    const Topology levels = topology_of_pods(pods, 8);
    ASSERT_EQ(levels.way, Way::Levels);
    const HostWire sent = bytes_between_hosts(wire, levels),
                   ring = bytes_between_hosts(wire, topology_of_pods(world, 1));
    EXPECT_EQ(ring.gradients, wire.gradient_bytes);
    EXPECT_EQ(ring.parameters, wire.parameter_bytes);
    // n (world-1)/world becomes n (hosts-1)/hosts; what is sent is a multiple of world - 1.
    EXPECT_EQ(sent.gradients, wire.gradient_bytes / (world - 1) * 8 * (pods - 1));
    EXPECT_EQ(sent.parameters, wire.parameter_bytes / (world - 1) * 8 * (pods - 1));
    EXPECT_EQ(sent.matrices + sent.momenta, 0);
    std::printf(
        "%4d hosts of 8 ranks: a host sends %.1f GB of gradients and %.1f GB of parameters per "
        "step (one ring: %.1f and %.1f)\n",
        pods, double(sent.gradients) / 1e9, double(sent.parameters) / 1e9,
        double(ring.gradients) / 1e9, double(ring.parameters) / 1e9);
  }
}

TEST(HostWire, MomentaAreDealtAndThenGathered) {
  // Two hosts of two ranks; a message of 100 bytes goes from each rank to each other one, twice.
  const WireCount wire{.momentum_bytes = 600};
  EXPECT_EQ(bytes_between_hosts(wire, topology_of_pods(2, 2)).momenta, 400 + 200);
  EXPECT_EQ(bytes_between_hosts(wire, topology_of_pods(4, 1)).momenta, 600 + 300);
  EXPECT_EQ(bytes_between_hosts(wire, topology_of_pods(1, 4)).momenta, 0);
  const auto two = topology_of_pods(2, 2);
  EXPECT_EQ(bytes_between_hosts({.later_parameter_bytes = 600}, two).later_parameters,
            bytes_between_hosts({.parameter_bytes = 600}, two).parameters);
}

}  // namespace
}  // namespace dsj::plan

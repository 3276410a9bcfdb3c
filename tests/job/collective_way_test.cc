#include "job/collective_way.h"

#include <gtest/gtest.h>

#include <vector>

namespace dsj {
namespace {

using Hosts = std::vector<std::string>;

TEST(Topology, OneHostSharesMemory) {
  EXPECT_EQ(topology_of(Hosts{"a", "a", "a"}).way, Way::Shared);
  EXPECT_EQ(topology_of(Hosts{"a", "a", "a"}).each, 3);
}

TEST(Topology, HostsOfEquallyManyConsecutiveRanksGoInTwoLevels) {
  const Topology two = topology_of(Hosts{"b", "b", "b", "a", "a", "a"});
  EXPECT_EQ(two.way, Way::Levels);
  EXPECT_EQ(two.hosts, 2);
  EXPECT_EQ(two.each, 3);
  EXPECT_EQ(two.because, "2 hosts of 3 ranks");
  Hosts many;
  for (int rank = 0; rank < 4096; ++rank) many.push_back("host" + std::to_string(rank / 8));
  EXPECT_EQ(topology_of(many).hosts, 512);
  EXPECT_EQ(topology_of(many).each, 8);
}

TEST(Topology, AllElseIsOneRingAndSaysWhy) {
  const auto why = [](const Hosts& hosts) {
    const Topology topology = topology_of(hosts);
    EXPECT_EQ(topology.way, Way::Flat);
    return topology.because;
  };
  EXPECT_EQ(why({"a", "b", "c"}), "one rank per host");
  EXPECT_EQ(why({"a", "a", "b", "b", "b"}), "hosts of 2 and 3 ranks");
  EXPECT_EQ(why({"a", "b", "a", "b"}), "the ranks of a host are not consecutive");
  EXPECT_EQ(why({"-", "-"}), "one rank per host") << "a host that is not known is like no other";
  EXPECT_EQ(why({"a", "a", "-", "-"}), "hosts of 1 and 2 ranks");
}

TEST(Topology, TravelsAsOneLine) {
  for (const Hosts& hosts :
       std::vector<Hosts>{{"a", "a"}, {"a", "b"}, {"a", "a", "b", "b"}, {"a", "b", "a"}}) {
    const Topology sent = topology_of(hosts), come = parse_topology(text_of(sent));
    EXPECT_EQ(come.way, sent.way);
    EXPECT_EQ(come.hosts, sent.hosts);
    EXPECT_EQ(come.each, sent.each);
    EXPECT_EQ(come.because, sent.because);
  }
}

TEST(Topology, APodIsAHost) {
  EXPECT_EQ(topology_of_pods(1, 1).way, Way::Shared);
  EXPECT_EQ(topology_of_pods(1, 8).way, Way::Shared);
  EXPECT_EQ(topology_of_pods(8, 1).way, Way::Flat);
  for (const int pods : {8, 64, 512}) {
    const Topology topology = topology_of_pods(pods, 8);
    EXPECT_EQ(topology.way, Way::Levels);
    EXPECT_EQ(topology.because, std::to_string(pods) + " hosts of 8 ranks");
  }
}

/// n (hosts-1)/hosts of n bytes, where the ring sends n (world-1)/world.
TEST(Topology, BytesBetweenHostsAreTheLeastInTwoLevels) {
  for (const int pods : {8, 64, 512}) {
    const int64_t world = pods * 8, n = world << 20, sent = n / world * (world - 1);
    EXPECT_EQ(between_hosts(topology_of_pods(pods, 8), sent), n / pods * (pods - 1));
    EXPECT_EQ(between_hosts(topology_of_pods(static_cast<int>(world), 1), sent), sent);
    EXPECT_EQ(between_hosts(topology_of_pods(1, static_cast<int>(world)), sent), 0);
    EXPECT_EQ(between_hosts_of_all_to_all(topology_of_pods(static_cast<int>(world), 1), sent),
              n * (world - 1) / 2);
    EXPECT_EQ(between_hosts_of_all_to_all(topology_of_pods(pods, 8), sent), 8 * n * (pods - 1) / 2);
  }
  EXPECT_EQ(between_hosts(topology_of_pods(2, 4), 701), 400) << "400.57, and no number overflows";
  EXPECT_EQ(between_hosts(topology_of_pods(512, 8), INT64_MAX / 8192), 1'123'975'291'617'250);
}

}  // namespace
}  // namespace dsj

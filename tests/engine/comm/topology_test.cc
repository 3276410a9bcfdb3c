#include "engine/comm/topology.h"

#include <gtest/gtest.h>

#include <vector>

namespace dsj::comm {
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

}  // namespace
}  // namespace dsj::comm

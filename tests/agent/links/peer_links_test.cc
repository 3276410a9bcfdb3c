// Whose link is slow, on rings of nodes whose sending and receiving rates a test plays.
#include "agent/links/link_check.h"

#include <gmock/gmock.h>

#include <random>

namespace dsj::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kMB = 1'000'000;

/// A network without a fault of its own: a transfer takes what the slower end can.
struct PlayedNodes {
  explicit PlayedNodes(int count) : sends(count, 1000 * kMB), receives(count, 1000 * kMB) {
    for (int i = 0; i < count; ++i) members.push_back({i, "n" + std::to_string(i)});
  }
  void slow(int node) { sends[node] = receives[node] = 90 * kMB; }
  std::vector<PeerLink> round(int number) const {
    std::vector<PeerLink> links;
    const auto peers = ring_peers(static_cast<int>(members.size()), number);
    for (int i = 0; i < static_cast<int>(peers.size()); ++i) {
      links.push_back({i, peers[i], std::min(sends[i], receives[peers[i]])});
    }
    return links;
  }
  std::vector<PeerLink> both() const {
    auto links = round(1);
    const auto second = round(2);
    links.insert(links.end(), second.begin(), second.end());
    return links;
  }
  LinkJudgement judge(int percent = 20) const { return judge_links(both(), members, percent); }
  std::vector<int> named(int percent = 20) const {
    std::vector<int> nodes;
    const LinkJudgement judged = judge(percent);
    for (const auto& [node, why] : judged.slow) nodes.push_back(node);
    return nodes;
  }

  std::vector<int64_t> sends, receives;
  std::vector<RingMember> members;
};

TEST(PeerLinks, EverybodySendsOnceAndReceivesOnceInARound) {
  for (const int members : {2, 3, 4, 5, 64}) {
    for (const int round : {1, 2}) {
      auto peers = ring_peers(members, round);
      for (int i = 0; i < members; ++i) EXPECT_NE(peers[i], i) << members;
      std::ranges::sort(peers);
      for (int i = 0; i < members; ++i) EXPECT_EQ(peers[i], i) << members;
    }
    const bool others = ring_peers(members, 1) != ring_peers(members, 2);
    EXPECT_EQ(others, members > 2) << members;
  }
}

TEST(PeerLinks, NobodyIsNamedWhereNothingIsSlow) {
  for (const int count : {2, 3, 8, 512}) {
    const auto judged = PlayedNodes(count).judge();
    EXPECT_EQ(judged.usual, 1000 * kMB);
    EXPECT_FALSE(judged.any_slow);
    EXPECT_THAT(judged.slow, IsEmpty());
    EXPECT_THAT(judged.unsure, IsEmpty());
  }
  EXPECT_EQ(judge_links({}, {}, 20).usual, 0);
}

TEST(PeerLinks, ASlowNodeIsNamedWithItsFigures) {
  for (const int count : {3, 4, 5, 8, 512}) {
    PlayedNodes nodes(count);
    nodes.slow(1);
    EXPECT_THAT(nodes.named(), ElementsAre(1)) << count;
    EXPECT_THAT(nodes.judge().unsure, IsEmpty()) << count;
  }
  PlayedNodes nodes(8);
  nodes.slow(1);
  EXPECT_EQ(
      nodes.judge().slow[0].second,
      "its link to other nodes carries 90 MB/s from node n0 (worker 0), 90 MB/s to node n2 "
      "(worker 2), 90 MB/s to node n7 (worker 7), 90 MB/s from node n3 (worker 3); the median "
      "of 8 nodes is 1000 MB/s, expected at least 20 % of it (minPeerBandwidthPercent)");
}

TEST(PeerLinks, OneDirectionIsEnough) {
  for (const int count : {3, 4, 8}) {
    PlayedNodes sender(count), receiver(count);
    sender.sends[2] = 5 * kMB;
    EXPECT_THAT(sender.named(), ElementsAre(2)) << count;
    receiver.receives[0] = 5 * kMB;
    EXPECT_THAT(receiver.named(), ElementsAre(0)) << count;
  }
}

/// Node 2 sends to both of them only; it is not the cause, and nothing else speaks against it.
TEST(PeerLinks, WhoHasOnlySlowPeersIsNotNamed) {
  PlayedNodes rack(8);
  rack.slow(3);
  rack.slow(4);
  EXPECT_THAT(rack.named(), ElementsAre(3, 4));
  PlayedNodes between(8);
  between.slow(1);
  between.slow(3);
  EXPECT_THAT(between.named(), ElementsAre(1, 3));
}

TEST(PeerLinks, OfTwoNobodyKnowsWhich) {
  PlayedNodes two(2);
  two.sends[0] = 90 * kMB;
  const auto judged = two.judge();
  EXPECT_TRUE(judged.any_slow);
  EXPECT_THAT(judged.slow, IsEmpty());
  ASSERT_FALSE(judged.unsure.empty());
  EXPECT_THAT(judged.unsure[0],
              HasSubstr("from node n0 (worker 0) to node n1 (worker 1) carries 90"));
  EXPECT_THAT(judged.unsure[0], HasSubstr("either node may be the cause"));
  two.sends[1] = 90 * kMB;
  EXPECT_FALSE(two.judge().any_slow) << "both are the same: there is nothing to compare with";
}

/// What slows one path, and neither of its ends, moves nobody.
TEST(PeerLinks, APathIsToldAndNobodyIsNamed) {
  PlayedNodes nodes(6);
  auto links = nodes.both();
  links[2].bytes_per_second = 10 * kMB;
  const auto judged = judge_links(links, nodes.members, 20);
  EXPECT_THAT(judged.slow, IsEmpty());
  ASSERT_EQ(judged.unsure.size(), 1u);
  EXPECT_THAT(judged.unsure[0], HasSubstr("both nodes have faster links to other nodes"));
}

/// Two zones with little between them: nothing is wrong with the nodes at their ends.
TEST(PeerLinks, ASlowWayBetweenGroupsNamesNobody) {
  for (const int group : {2, 3, 4, 16}) {
    PlayedNodes nodes(2 * group);
    auto links = nodes.both();
    for (PeerLink& link : links) {
      if ((link.from < group) != (link.to < group)) link.bytes_per_second = 10 * kMB;
    }
    const auto judged = judge_links(links, nodes.members, 20);
    EXPECT_TRUE(judged.any_slow);
    EXPECT_THAT(judged.slow, IsEmpty()) << group;
    EXPECT_FALSE(judged.unsure.empty());
  }
}

/// In a single round nobody has a second transfer that would speak for him.
TEST(PeerLinks, OneSlowTransferOfARoundNamesNobody) {
  PlayedNodes nodes(8);
  auto links = nodes.round(1);
  links[2].bytes_per_second = 10 * kMB;
  const auto judged = judge_links(links, nodes.members, 20);
  EXPECT_TRUE(judged.any_slow);
  EXPECT_THAT(judged.slow, IsEmpty());
}

TEST(PeerLinks, WhatWasNotMeasuredIsNotJudged) {
  PlayedNodes nodes(8);
  nodes.slow(5);
  auto links = nodes.both();
  std::erase_if(links, [](const PeerLink& link) { return link.from == 5 || link.to == 5; });
  EXPECT_THAT(judge_links(links, nodes.members, 20).slow, IsEmpty());
}

/// Networks whose links differ by a factor of three, and one transfer of each gang that went wrong.
TEST(PeerLinks, UnevenNetworksNameNobody) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> speed(0.34, 1);
  for (int trial = 0; trial < 400; ++trial) {
    PlayedNodes nodes(2 + trial % 40);
    for (auto* rates : {&nodes.sends, &nodes.receives}) {
      for (int64_t& rate : *rates) rate = static_cast<int64_t>(1000.0 * kMB * speed(random));
    }
    auto links = nodes.both();
    links[random() % links.size()].bytes_per_second /= 100;
    EXPECT_THAT(judge_links(links, nodes.members, 20).slow, IsEmpty()) << trial;
  }
}

TEST(PeerLinks, TheLimitIsTheJobs) {
  PlayedNodes nodes(8);
  nodes.sends[1] = nodes.receives[1] = 400 * kMB;
  EXPECT_THAT(nodes.named(20), IsEmpty());
  EXPECT_THAT(nodes.named(50), ElementsAre(1));
  EXPECT_THAT(nodes.judge(50).slow[0].second, HasSubstr("at least 50 % of it"));
}

}  // namespace
}  // namespace dsj::agent

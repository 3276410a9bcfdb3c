// Links over TCP on this machine: what a transfer tells, and what strangers can do.
#include "agent/links/link_meter.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>

#include "tests/common/http/raw_http.h"
#include "tests/support/soon.h"

namespace dsj::agent {
namespace {

using testing::HasSubstr;

std::unique_ptr<TcpLinkMeter> meter(const LinkLimits& limits = {.sending = kLong}) {
  auto made = TcpLinkMeter::open("127.0.0.1", "n1", true, limits);
  EXPECT_TRUE(made) << made.error().to_string();
  return std::move(*made);
}
LinkOrder order_to(const LinkMeter& peer, int64_t round) {
  const LinkPlace place = peer.place();
  return {round, place.address, place.port, place.key};
}
LinkRate result(LinkMeter& from) {
  std::optional<LinkRate> rate;
  EXPECT_TRUE(soon([&] { return (rate = from.take()).has_value(); }));
  return rate.value_or(LinkRate{});
}
/// What the other side sends until it ends the connection.
std::string all_from(int fd) {
  std::string text;
  char block[64];
  for (ssize_t got = 0; (got = recv(fd, block, sizeof block, 0)) > 0;) text.append(block, got);
  return text;
}

TEST(TcpLinkMeter, TellsThePlace) {
  const auto own = meter(), other = meter();
  const LinkPlace place = own->place();
  EXPECT_EQ(place.node, "n1");
  EXPECT_EQ(place.address, "127.0.0.1");
  EXPECT_TRUE(place.moves);
  EXPECT_GT(place.port, 0);
  EXPECT_EQ(place.key.size(), 32u);
  EXPECT_NE(place.key, other->place().key);
}

TEST(TcpLinkMeter, TwoPeersMeasureEachOtherAtTheSameTime) {
  const auto a = meter(), b = meter();
  for (int64_t round : {1, 2}) {
    a->send(order_to(*b, round));
    b->send(order_to(*a, round));
    for (LinkMeter* one : {a.get(), b.get()}) {
      const LinkRate rate = result(*one);
      EXPECT_EQ(rate.round, round);
      EXPECT_EQ(rate.problem, "");
      EXPECT_GT(rate.bytes_per_second, 0);
      EXPECT_FALSE(one->take()) << "once";
    }
  }
}

TEST(TcpLinkMeter, ItsDescriptorWakesTheLoop) {
  const auto a = meter(), b = meter();
  a->send(order_to(*b, 1));
  pollfd entry{a->ready_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, static_cast<int>(Time(kLong).count())), 1);
  EXPECT_TRUE(a->take());
}

/// The receiver decides when a transfer is over, so a slow link takes no longer than a fast one.
TEST(TcpLinkMeter, ASlowSenderIsToldHowSlowItWas) {
  const auto peer = meter({.receiving = Time(50)});
  const int fd = raw_connect(peer->place().port);
  const std::string key = peer->place().key;
  ASSERT_EQ(send(fd, key.data(), key.size(), MSG_NOSIGNAL), static_cast<ssize_t>(key.size()));
  ASSERT_EQ(send(fd, "x", 1, MSG_NOSIGNAL), 1);
  const std::string answer = all_from(fd);
  close(fd);
  ASSERT_EQ(answer.size(), 16u);
  int64_t rate = 0;
  std::from_chars(answer.data(), answer.data() + 16, rate, 16);
  EXPECT_EQ(rate, 1) << "its only byte started the clock";
}

TEST(TcpLinkMeter, AStrangerGetsNoAnswer) {
  const auto peer = meter();
  const int fd = raw_connect(peer->place().port);
  const std::string key(32, '0');
  ASSERT_EQ(send(fd, key.data(), key.size(), MSG_NOSIGNAL), static_cast<ssize_t>(key.size()));
  EXPECT_EQ(all_from(fd), "");
  close(fd);
}

TEST(TcpLinkMeter, WhoSaysNothingIsShutOut) {
  const auto peer = meter({.sending = Time(50)});
  std::vector<int> strangers;
  for (int i = 0; i < 20; ++i) strangers.push_back(raw_connect(peer->place().port));
  for (const int fd : strangers) {
    EXPECT_EQ(all_from(fd), "");
    close(fd);
  }
  const auto own = meter();
  int64_t round = 0;
  EXPECT_TRUE(soon([&] {  // there is room again
    own->send(order_to(*peer, ++round));
    return result(*own).bytes_per_second > 0;
  }));
}

TEST(TcpLinkMeter, WhatDoesNotWorkIsTold) {
  const auto own = meter(), hasty = meter({.sending = Time(100)});
  own->send({.round = 1, .address = "nowhere", .port = 1, .key = "k"});
  EXPECT_THAT(result(*own).problem, HasSubstr("\"nowhere\" is not an address"));

  int port = 0;
  {
    const auto gone = meter();
    port = gone->place().port;
  }
  own->send({.round = 2, .address = "127.0.0.1", .port = port, .key = std::string(32, 'k')});
  EXPECT_THAT(result(*own).problem, HasSubstr("127.0.0.1: no connection: "));

  const auto peer = meter();
  hasty->send({.round = 3, .address = "127.0.0.1", .port = peer->place().port, .key = "short"});
  EXPECT_THAT(result(*hasty).problem, HasSubstr("no answer"));
  hasty->send({4, "127.0.0.1", peer->place().port, std::string(32, '0')});
  const LinkRate refused = result(*hasty);
  EXPECT_EQ(refused.round, 4);
  EXPECT_THAT(refused.problem, HasSubstr("no answer"));
  EXPECT_EQ(refused.bytes_per_second, 0);
}

TEST(TcpLinkMeter, WhatALaterOrderOvertakesIsNotTold) {
  const auto own = meter(), peer = meter();
  own->send(order_to(*peer, 1));
  own->send(order_to(*peer, 2));
  EXPECT_EQ(result(*own).round, 2);
}

TEST(TcpLinkMeter, EndsInTheMiddleOfATransfer) {
  const auto own = meter();
  auto peer = meter();
  own->send(order_to(*peer, 1));
  peer.reset();
  EXPECT_EQ(result(*own).round, 1);
  auto leaving = meter();
  leaving->send(order_to(*own, 1));
  leaving.reset();
}

TEST(TcpLinkMeter, AnAddressThatIsNotItsOwnIsRefused) {
  const auto made = TcpLinkMeter::open("192.0.2.1", "n", false);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().kind, ErrorKind::Environment);
}

}  // namespace
}  // namespace dsj::agent

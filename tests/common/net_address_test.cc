#include "common/net_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "tests/support/ipv6_only.h"

namespace dsj {
namespace {

TEST(NetAddress, HasBracketsAroundIpv6Only) {
  EXPECT_EQ(host_port_text("name.test", 80), "name.test:80");
  EXPECT_EQ(host_port_text("10.0.0.1", 80), "10.0.0.1:80");
  EXPECT_EQ(host_port_text("2001:db8::a1", 29400), "[2001:db8::a1]:29400");
  EXPECT_EQ(url_host("2001:db8::a1"), "[2001:db8::a1]");
  EXPECT_EQ(url_host("10.0.0.1"), "10.0.0.1");
}

TEST(NetAddress, IsTakenApart) {
  const auto all = parse_host_port(":80");
  ASSERT_TRUE(all);
  EXPECT_EQ(all->host, "");
  EXPECT_EQ(all->port, 80);
  const auto bare = parse_host_port("[::1]");
  ASSERT_TRUE(bare);
  EXPECT_EQ(bare->host, "::1");
  EXPECT_FALSE(bare->port);
  for (const char* wrong : {"", "a:", "a:b", "a:-1", "a:65536", "a:1x", "::1", "fd00::1:80", "[::1",
                            "[::1]80", "[::1]:", "[a]:80", "[]:80"})
    EXPECT_FALSE(parse_host_port(wrong)) << wrong;
}

TEST(NetAddress, WhatIsWrittenIsRead) {
  std::mt19937 draw(31);
  for (int i = 0; i < 2000; ++i) {
    char text[INET6_ADDRSTRLEN];
    in6_addr bytes{};
    for (auto& byte : bytes.s6_addr) byte = draw() % 3 == 0 ? static_cast<uint8_t>(draw()) : 0;
    const int family = draw() % 2 == 0 ? AF_INET : AF_INET6;
    ASSERT_NE(inet_ntop(family, &bytes, text, sizeof text), nullptr);
    const int port = static_cast<int>(draw() % 65'536);
    EXPECT_TRUE(is_ip_address(text)) << text;
    const auto read = parse_host_port(host_port_text(text, port));
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(read->host, text);
    EXPECT_EQ(read->port, port);
    const auto alone = parse_host_port(url_host(text));
    ASSERT_TRUE(alone) << text;
    EXPECT_EQ(alone->host, text);
  }
  EXPECT_FALSE(is_ip_address("name"));
  EXPECT_FALSE(is_ip_address("[::1]"));
  EXPECT_FALSE(is_ip_address(""));
}

// Each address that `ip` shows is found again at its interface.
TEST(NetAddress, AnAddressIsAtItsInterface) {
  EXPECT_EQ(interface_with("127.0.0.1"), "");
  EXPECT_EQ(interface_with("192.0.2.1"), "");
  EXPECT_EQ(interface_with(""), "");
  const Ipv6Only network;
  if (!network.made() ||
      std::system("ip link add dsj0 type veth peer name dsj1 && ip link set dsj0 up && "
                  "ip -6 addr add fd00::77/64 dev dsj0 nodad") != 0)
    GTEST_SKIP() << "no interface can be made here: NOT RUN";
  EXPECT_EQ(interface_with("fd00::77"), "dsj0");
  EXPECT_EQ(interface_with("::1"), "");
}

}  // namespace
}  // namespace dsj

#include "kube/proxy.h"

#include <gtest/gtest.h>

#include "common/net_address.h"

namespace dsj::kube {
namespace {

// What net/http's ProxyFromEnvironment of Go 1.26.8 says with HTTPS_PROXY=http://p:1: 'P' through the proxy, '-' without
// it, one letter per server.
const char* const kServers[] = {
    "https://10.0.0.1:6443",        "https://10.0.0.1",         "https://10.1.2.3:6443",
    "https://[fd00::1]:6443",       "https://[fd00::1]",        "https://[::ffff:10.0.0.1]:6443",
    "https://[::1]:6443",           "https://127.0.0.2:6443",   "https://localhost:6443",
    "https://LOCALHOST:6443",       "https://api.example.com",  "https://api.example.com:6443",
    "https://API.Example.COM:6443", "https://example.com:6443", "https://badexample.com",
    "https://a.b.api.example.com"};

struct Row {
  const char *no_proxy, *go;
};
const Row kRows[] = {{"", "PPPPPP---PPPPPPP"},
                     {"*", "----------------"},
                     {"10.0.0.1", "--PPP----PPPPPPP"},
                     {"10.0.0.1:6443", "-PPPP----PPPPPPP"},
                     {"10.0.0.1:443", "P-PPPP---PPPPPPP"},
                     {"10.0.0.0/8", "---PP----PPPPPPP"},
                     {"10.0.0.0/31", "--PPP----PPPPPPP"},
                     {" 10.0.0.0/8 ,x", "---PP----PPPPPPP"},
                     {"10.0.0.0/33", "PPPPPP---PPPPPPP"},
                     {"010.0.0.1", "PPPPPP---PPPPPPP"},
                     {"10.0.0", "PPPPPP---PPPPPPP"},
                     {"fd00::1", "PPP--P---PPPPPPP"},
                     {"[fd00::1]", "PPPPPP---PPPPPPP"},
                     {"[fd00::1]:6443", "PPP-PP---PPPPPPP"},
                     {"[fd00::1]:443", "PPPP-P---PPPPPPP"},
                     {"fd00::/16", "PPP--P---PPPPPPP"},
                     {"fd00::/129", "PPPPPP---PPPPPPP"},
                     {"::ffff:10.0.0.1", "--PPP----PPPPPPP"},
                     {"example.com", "PPPPPP---P----P-"},
                     {".example.com", "PPPPPP---P---PP-"},
                     {"*.example.com", "PPPPPP---P---PP-"},
                     {"EXAMPLE.com", "PPPPPP---P----P-"},
                     {"example.com:6443", "PPPPPP---PP---PP"},
                     {".example.com:443", "PPPPPP---P-PPPP-"},
                     {"api.example.com:6443", "PPPPPP---PP--PPP"},
                     {"com", "PPPPPP---P------"},
                     {":6443", "PPPPPP---PPPPPPP"},
                     {"e,,example.com", "PPPPPP---P----P-"},
                     {"x,*", "----------------"},
                     {"*:6443", "PPPPPP---PPPPPPP"},
                     {"example.com.", "PPPPPP---PPPPPPP"},
                     {"10.0.0.0/08", "---PP----PPPPPPP"},
                     {"localhost", "PPPPPP----PPPPPP"},
                     {"*example.com", "PPPPPP---PPPPPPP"},
                     {"0.0.0.0/0", "---PP----PPPPPPP"},
                     {"::/0", "PPP--P---PPPPPPP"}};

TEST(Proxy, NoProxyIsReadAsGoReadsIt) {
  for (const auto& [no_proxy, go] : kRows) {
    std::string ours;
    for (const char* server : kServers) {
      const auto proxy = proxy_from(
          {.http_proxy = "http://other:1", .https_proxy = "http://p:1", .no_proxy = no_proxy},
          server);
      ASSERT_TRUE(proxy) << proxy.error().to_string();
      ours += *proxy ? 'P' : '-';
    }
    EXPECT_EQ(ours, go) << "NO_PROXY=" << no_proxy;
  }
}

TEST(Proxy, TheServersSchemeChoosesTheVariable) {
  const ProxyVariables both{
      .http_proxy = "plain:3128", .https_proxy = "https://secure", .no_proxy = ""};
  const auto plain = proxy_from(both, "http://10.0.0.1:8001/path");
  ASSERT_TRUE(plain && *plain);
  EXPECT_EQ((*plain)->name(), "proxy plain:3128");
  const auto secure = proxy_from(both, "https://10.0.0.1:6443");
  ASSERT_TRUE(secure && *secure);
  EXPECT_EQ((*secure)->kind, Proxy::Kind::Https);
  EXPECT_EQ((*secure)->name(), "proxy secure:443");
  const auto none = proxy_from({.http_proxy = "plain:3128", .https_proxy = "", .no_proxy = ""},
                               "https://10.0.0.1");
  ASSERT_TRUE(none);
  EXPECT_FALSE(*none);
}

TEST(Proxy, AnAddressIsTakenApart) {
  const auto proxy = parse_proxy("SOCKS5://me%40home:p%3Aw@[fd00::1]/", "here");
  ASSERT_TRUE(proxy) << proxy.error().to_string();
  EXPECT_EQ(proxy->kind, Proxy::Kind::Socks5);
  EXPECT_EQ(proxy->name(), "proxy [fd00::1]:1080");
  EXPECT_EQ(proxy->user, "me@home");
  EXPECT_EQ(proxy->password, "p:w");
  // RFC 7617's own example.
  const auto basic = parse_proxy("http://Aladdin:open%20sesame@p:1", "here");
  ASSERT_TRUE(basic);
  EXPECT_EQ(basic->basic_authorization(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
  const auto nobody = parse_proxy("http://p", "here");
  ASSERT_TRUE(nobody);
  EXPECT_EQ(nobody->basic_authorization(), "");
}

TEST(Proxy, AWrongAddressIsRefusedWithoutItsPassword) {
  for (const char* wrong :
       {"ftp://u:secret@p", "u:secret@p:1", "http://u:secret@", "http://u:secret%4@p",
        "http://u:secret@p:x", "http://u:secret@p:70000", "socks4://u:secret@p", ""}) {
    const auto proxy = parse_proxy(wrong, "proxy-url");
    ASSERT_FALSE(proxy) << wrong;
    const std::string said = proxy.error().to_string();
    EXPECT_EQ(said.find("secret"), std::string::npos) << said;
    EXPECT_NE(said.find("proxy-url"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace dsj::kube

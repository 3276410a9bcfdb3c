// The metrics' own port, over TLS, and what is left of them on the port of the probes.
#include "operator/serve/metrics_server.h"

#include <gmock/gmock.h>

#include "kube/api_transport.h"
#include "operator/serve/health_server.h"
#include "tests/operator/reviewing_server.h"

namespace dsj::op::testing {
namespace {

int get(const kube::Access& access, const std::string& path) {
  auto client = kube::make_api_transport(access);
  EXPECT_TRUE(client) << client.error().to_string();
  const auto answer = (*client)->call({.path = path}, {});
  EXPECT_TRUE(answer) << answer.error().message;
  return answer ? answer->status : 0;
}

TEST(MetricsServer, ReadersReadOverTls) {
  ReviewingServer server;
  server.known = server.allowed = {"reader"};
  const auto listener =
      serve_metrics("127.0.0.1:0", "one", server, kube::system_clock(), [] { return "m 1\n"; });
  ASSERT_TRUE(listener) << listener.error().to_string();
  const std::string url = "https://127.0.0.1:" + std::to_string((*listener)->port());
  const kube::Access reader{.server = url, .token = "reader", .insecure_skip_tls_verify = true};
  EXPECT_EQ(get(reader, "/metrics"), 200);
  EXPECT_EQ(get(reader, "/debug"), 404);
  EXPECT_EQ(get({.server = url, .token = "stranger", .insecure_skip_tls_verify = true}, "/metrics"),
            401);
  EXPECT_EQ(get({.server = url, .insecure_skip_tls_verify = true}, "/metrics"), 401);
}

TEST(MetricsServer, ProbesHaveNoMetricsThen) {
  const auto listener =
      serve_health("127.0.0.1:0", {.not_ready = [] { return std::string(); }, .metrics = {}});
  ASSERT_TRUE(listener) << listener.error().to_string();
  const kube::Access anybody{.server = "http://127.0.0.1:" + std::to_string((*listener)->port())};
  EXPECT_EQ(get(anybody, "/readyz"), 200);
  EXPECT_EQ(get(anybody, "/metrics"), 404);
}

}  // namespace
}  // namespace dsj::op::testing

#include "operator/serve/metrics_access.h"

#include <gmock/gmock.h>
#include <spdlog/spdlog.h>

#include "tests/kube/fake_clock.h"
#include "tests/operator/reviewing_server.h"

namespace dsj::op::testing {
namespace {

struct MetricsAccessTest : ::testing::Test {
  MetricsAccessTest() {
    server.known = {"reader", "stranger"};
    server.allowed = {"reader"};
  }
  /// The status of the answer; 0: it may read.
  int ask(const std::string& authorization) {
    const auto refusal = access.refuse(authorization);
    return refusal ? refusal->status : 0;
  }
  ReviewingServer server;
  kube::testing::FakeClock clock;
  MetricsAccess access{server, clock};
};

TEST_F(MetricsAccessTest, IsForThoseWhomTheApiServerKnowsAndLets) {
  EXPECT_EQ(ask("Bearer reader"), 0);
  EXPECT_EQ(ask("bearer reader"), 0) << "the scheme's case means nothing (RFC 9110)";
  EXPECT_EQ(ask("Bearer stranger"), 403);
  EXPECT_EQ(ask("Bearer made-up"), 401);
  EXPECT_EQ(ask(""), 401);
  EXPECT_EQ(ask("Basic reader"), 401);
  EXPECT_EQ(ask("Bearer "), 401);
  ASSERT_EQ(server.questions.size(), 2u);
  EXPECT_EQ(server.questions[0],
            (kube::Json{{"nonResourceAttributes", {{"path", "/metrics"}, {"verb", "get"}}},
                        {"user", "reader"},
                        {"groups", {"g"}},
                        {"extra", {{"k", {"v"}}}}}));
}

TEST_F(MetricsAccessTest, AnAnswerHoldsForAWhile) {
  EXPECT_EQ(ask("Bearer reader"), 0);
  EXPECT_EQ(ask("Bearer stranger"), 403);
  const int asked = server.asked;
  EXPECT_EQ(ask("Bearer reader"), 0);
  EXPECT_EQ(ask("Bearer stranger"), 403);
  EXPECT_EQ(server.asked, asked);
  server.allowed = {"stranger"};
  clock.now += kube::Milliseconds(11'000);
  EXPECT_EQ(ask("Bearer stranger"), 0) << "a right that was given counts soon";
  EXPECT_EQ(ask("Bearer reader"), 0);
  clock.now += kube::Milliseconds(60'000);
  EXPECT_EQ(ask("Bearer reader"), 403) << "one that was taken, after a minute";
}

TEST_F(MetricsAccessTest, WithoutAnAnswerNobodyReads) {
  spdlog::set_level(spdlog::level::off);
  server.answers = false;
  EXPECT_EQ(ask("Bearer reader"), 503);
  server.answers = true;
  EXPECT_EQ(ask("Bearer reader"), 0) << "silence is not remembered";
}

TEST_F(MetricsAccessTest, MadeUpTokensCostTheApiServerLittle) {
  EXPECT_EQ(ask("Bearer reader"), 0);
  int refused = 0;
  for (int i = 0; i < 1000; ++i) refused += ask("Bearer made-up-" + std::to_string(i)) == 429;
  EXPECT_LT(server.asked, 100);
  EXPECT_GT(refused, 900);
  EXPECT_EQ(ask("Bearer reader"), 0) << "who was known still reads";
  clock.now += kube::Milliseconds(10'001);
  EXPECT_EQ(ask("Bearer made-up"), 401) << "and there is room again";
  EXPECT_EQ(ask("Bearer " + std::string(100'000, 'x')), 401) << "no token is so long";
}

}  // namespace
}  // namespace dsj::op::testing

#include "kube/client.h"

#include <gtest/gtest.h>

#include "tests/kube/fake_api_server.h"
#include "tests/kube/fake_clock.h"

namespace dsj::kube::testing {
namespace {

const Resource kMaps = resources::config_maps();
const Json kMap = {{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", "a"}}}};

struct ClientTest : ::testing::Test {
  FakeApiServer server;
  FakeClock clock;
  Client client{server, clock};

  /// The first `count` requests meet `fault`.
  void fail_first(int count, Fault fault) {
    server.set_fault(
        [count, fault](const Request&) mutable { return count-- > 0 ? fault : Fault{}; });
  }
};

TEST_F(ClientTest, ReadsAreRepeatedUntilTheServerAnswers) {
  ASSERT_TRUE(client.create(kMaps, "ns", kMap));
  fail_first(3, {Fault::Kind::Refuse, 503});
  EXPECT_TRUE(client.get(kMaps, "ns", "a"));
  EXPECT_EQ(server.requests("GET"), 4);
  EXPECT_EQ(clock.slept, Milliseconds(150 + 300 + 600));
}

TEST_F(ClientTest, AttemptsEnd) {
  fail_first(100, {Fault::Kind::Refuse, 500});
  const auto answer = client.get(kMaps, "ns", "a");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().status, 500);
  EXPECT_EQ(server.requests("GET"), 5);
}

TEST_F(ClientTest, TooManyRequestsWaitsAsLongAsAsked) {
  fail_first(1, {Fault::Kind::Refuse, 429, 7});
  EXPECT_TRUE(client.create(kMaps, "ns", kMap));
  EXPECT_EQ(clock.slept, std::chrono::seconds(7));
  EXPECT_EQ(server.requests("POST"), 2);
}

TEST_F(ClientTest, DoesNotWaitPastItsDeadline) {
  fail_first(1, {Fault::Kind::Refuse, 429, 3600});
  const auto answer = client.get(kMaps, "ns", "a");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind, ApiError::Kind::TooManyRequests);
  EXPECT_EQ(answer.error().retry_after, std::chrono::seconds(3600));
  EXPECT_EQ(clock.sleeps, 0);
}

TEST_F(ClientTest, ACreateWhoseFateIsUnknownIsNotRepeated) {
  fail_first(1, {Fault::Kind::LoseAnswer});
  const auto answer = client.create(kMaps, "ns", kMap);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().net, NetError::Kind::Cut);
  EXPECT_EQ(server.requests("POST"), 1);
  EXPECT_EQ(server.objects(kMaps).size(), 1u);
}

TEST_F(ClientTest, AnApplyWhoseAnswerWasLostIsRepeated) {
  fail_first(1, {Fault::Kind::LoseAnswer});
  EXPECT_TRUE(client.apply(kMaps, "ns", kMap, {.manager = "m"}));
  EXPECT_EQ(server.requests("PATCH"), 2);
  EXPECT_EQ(server.objects(kMaps).size(), 1u);
}

TEST_F(ClientTest, ADeleteWhoseAnswerWasLostIsDone) {
  ASSERT_TRUE(client.create(kMaps, "ns", kMap));
  fail_first(1, {Fault::Kind::LoseAnswer});
  EXPECT_TRUE(client.remove(kMaps, "ns", "a"));
  EXPECT_TRUE(server.objects(kMaps).empty());
}

TEST_F(ClientTest, BytesThatAreNoTextAreReplacedInEveryBody) {
  Json map = kMap;
  map["data"] = {{"log", "half a character: \xe2\x82"}};
  const std::string sent = "half a character: \xef\xbf\xbd";
  const auto made = client.create(kMaps, "ns", map);
  ASSERT_TRUE(made);
  EXPECT_EQ((*made)["data"]["log"], sent);
  const Json patch = {{"data", {{"other", "\xff"}}}};
  const auto patched = client.merge_patch(kMaps, "ns", "a", patch);
  ASSERT_TRUE(patched);
  EXPECT_EQ((*patched)["data"]["other"], "\xef\xbf\xbd");
  EXPECT_TRUE(client.apply(kMaps, "ns", map, {.manager = "m"}));
  map["metadata"]["resourceVersion"] =
      (*client.get(kMaps, "ns", "a"))["metadata"]["resourceVersion"];
  EXPECT_TRUE(client.replace(kMaps, "ns", map));
}

TEST_F(ClientTest, NotFoundIsAnAnswerAndNotRepeated) {
  EXPECT_FALSE(client.get(kMaps, "ns", "a"));
  EXPECT_EQ(server.requests("GET"), 1);
}

TEST_F(ClientTest, UnauthorizedIsTriedOnceMoreForARotatedToken) {
  ASSERT_TRUE(client.create(kMaps, "ns", kMap));
  fail_first(1, {Fault::Kind::Refuse, 401});
  EXPECT_TRUE(client.get(kMaps, "ns", "a"));
  fail_first(2, {Fault::Kind::Refuse, 401});
  const auto answer = client.get(kMaps, "ns", "a");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind, ApiError::Kind::Unauthorized);
}

TEST_F(ClientTest, APageTokenThatGrewOldIsGone) {
  for (const char* name : {"a", "b", "c"}) {
    Json map = kMap;
    map["metadata"]["name"] = name;
    ASSERT_TRUE(client.create(kMaps, "ns", map));
  }
  int seen = 0;
  const auto version = client.list(kMaps, "ns", {.page = 1}, [&](const Json&) {
    if (++seen == 1) server.compact();
  });
  ASSERT_FALSE(version);
  EXPECT_EQ(version.error().kind, ApiError::Kind::Gone);
}

TEST(Backoff, DoublesUpToItsLimitAndIsSpread) {
  EXPECT_EQ(backoff(1, 0.0), Milliseconds(100));
  EXPECT_EQ(backoff(2, 0.5), Milliseconds(300));
  EXPECT_EQ(backoff(50, 0.999999), Milliseconds(29'999));
  EXPECT_EQ(backoff(1, 0.0, Milliseconds(5000)), Milliseconds(5000));
}

TEST(ApiErrorTest, ReadsAStatusAndTheRetryAfterHeader) {
  const auto error = from_response(
      {429,
       {{"retry-after", "3"}},
       R"({"kind":"Status","reason":"TooManyRequests","message":"slow down","code":429,
           "details":{"retryAfterSeconds":9}})"});
  EXPECT_EQ(error.kind, ApiError::Kind::TooManyRequests);
  EXPECT_EQ(error.retry_after, std::chrono::seconds(3));
  EXPECT_EQ(error.to_string(), "slow down (429 TooManyRequests)");
  EXPECT_TRUE(error.passing());
}

TEST(ApiErrorTest, TakesABodyThatIsNoStatus) {
  const auto error = from_response({502, {}, "<html>bad gateway</html>"});
  EXPECT_EQ(error.kind, ApiError::Kind::Unavailable);
  EXPECT_EQ(error.message, "<html>bad gateway</html>");
}

TEST(ResourceTest, PathsAreEscaped) {
  EXPECT_EQ(resources::pods().object("a b", "x/y", "status"),
            "/api/v1/namespaces/a%20b/pods/x%2Fy/status");
  EXPECT_EQ(resources::leases().collection(""), "/apis/coordination.k8s.io/v1/leases");
  EXPECT_EQ(resources::nodes().object("ignored", "n1"), "/api/v1/nodes/n1");
}

}  // namespace
}  // namespace dsj::kube::testing

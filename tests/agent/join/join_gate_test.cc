// Who joins and who does not, over real HTTP with tokens as a cluster signs them.
#include "agent/join/join_gate.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>

#include "agent/gang/session.h"
#include "agent/wire/http_transport.h"
#include "tests/agent/join/test_tokens.h"
#include "tests/common/http/raw_http.h"
#include "tests/support/soon.h"

namespace dsj::agent {
namespace {

struct JoinTest : testing::Test {
  TestKey key = TestKey::p256("k1");
  std::atomic<int64_t> wall = kTestNow;
  std::atomic<bool> api_away = false;
  std::vector<TestKey> published = {key};
  KeyRing ring{{},
               [this]() -> Result<std::string> {
                 if (api_away) return fail(ErrorKind::Transient, "away");
                 return jwks_of(published);
               },
               {.interval = Time(50)}};
  std::shared_ptr<TokenGate> gate = std::make_shared<TokenGate>(
      "tune", TokenRules{.issuer = kTestIssuer, .audience = kTestAudience, .subject = kTestSubject},
      ring, [this] { return wall.load(); }, 2);
  std::unique_ptr<HttpServer> server;

  void SetUp() override {
    auto opened = HttpServer::open("127.0.0.1", 0, gate, 2);
    ASSERT_TRUE(opened) << opened.error().to_string();
    server = std::move(*opened);
    server->publish(board_of(Session({.workers = 2}, Time(0))));
  }
  /// The status that a beat of worker 1 gets; asked again while keys are being fetched.
  int beat(const std::string& token, const WorkerReport& report = {.worker = 1, .slots = 2}) {
    int status = 0;
    const std::string body = to_text(report);
    EXPECT_TRUE(soon([&] {
      const std::string answer = raw_http(
          server->endpoint().port,
          "POST /v1/beat HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " +
              token + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
      status = answer.size() > 12 ? std::atoi(answer.c_str() + 9) : 0;
      return status != 503 || api_away;
    }));
    return status;
  }
  nlohmann::json own() const { return pod_claims("tune-worker-1-1", kTestNow); }
  nlohmann::json own_with(const char* name, nlohmann::json value) const {
    auto claims = own();
    claims[name] = std::move(value);
    return claims;
  }
};

TEST_F(JoinTest, TheWorkersOwnPodJoins) {
  EXPECT_EQ(beat(key.sign(own())), 200);
  ASSERT_EQ(server->take().size(), 1u);
  EXPECT_EQ(ring.fetches(), 1);
  EXPECT_EQ(beat(key.sign(own())), 200);
  EXPECT_EQ(ring.fetches(), 1) << "the key is known now";
}

TEST_F(JoinTest, NobodyElseDoes) {
  ASSERT_EQ(beat(key.sign(own())), 200);
  EXPECT_EQ(server->take().size(), 1u);
  struct {
    const char* what;
    std::string token;
    int status;
  } const attacks[] = {
      {"no token", "", 401},
      {"no token at all", "hello", 401},
      {"algorithm none",
       base64url(R"({"alg":"none","kid":"k1"})") + "." + base64url(own().dump()) + ".", 401},
      {"signed by another cluster", TestKey::p256("k1").sign(own()), 401},
      {"a key that the cluster does not have", TestKey::rsa("k9").sign(own()), 401},
      {"HMAC in place of a signature", key.sign(own(), {{"alg", "HS256"}}), 401},
      {"expired", key.sign(own_with("exp", kTestNow - 31)), 403},
      {"not valid yet", key.sign(own_with("nbf", kTestNow + 60)), 403},
      {"another audience", key.sign(own_with("aud", {"https://kubernetes.default.svc"})), 403},
      {"another job's audience", key.sign(own_with("aud", {"training.dsj.dev/job/uid-2"})), 403},
      {"another issuer", key.sign(own_with("iss", "https://elsewhere")), 403},
      {"another job's account",
       key.sign(own_with("sub", "system:serviceaccount:team:other-worker")), 403},
      {"the same account in another namespace",
       key.sign(own_with("sub", "system:serviceaccount:evil:tune-worker")), 403},
      {"not bound to a pod", key.sign(own_with("kubernetes.io", {{"namespace", "team"}})), 403},
      {"a foreign pod", key.sign(pod_claims("intruder", kTestNow)), 403},
      {"a colleague's pod", key.sign(pod_claims("tune-worker-0-1", kTestNow)), 403},
      {"its own pod of another life", key.sign(pod_claims("tune-worker-1-2", kTestNow)), 403},
  };
  for (const auto& attack : attacks) {
    EXPECT_EQ(beat(attack.token), attack.status) << attack.what;
  }
  EXPECT_TRUE(server->take().empty()) << "no refused beat is heard";
}

TEST_F(JoinTest, ATokenThatWasGoodExpires) {
  const std::string token = key.sign(own());
  EXPECT_EQ(beat(token), 200);
  wall = kTestNow + 3600 + 30;
  EXPECT_EQ(beat(token), 403) << "replayed after its time";
}

TEST_F(JoinTest, APodMadeAgainUnderTheSameNameIsRefused) {
  EXPECT_EQ(beat(key.sign(own())), 200);
  auto again = own();
  again["kubernetes.io"]["pod"]["uid"] = "somebody-else";
  EXPECT_EQ(beat(key.sign(again)), 403);
  EXPECT_EQ(beat(key.sign(own())), 200);
  const auto next = pod_claims("tune-worker-1-2", kTestNow);
  EXPECT_EQ(beat(key.sign(next), {.worker = 1, .incarnation = 2, .slots = 2}), 200);
}

TEST_F(JoinTest, RotatedKeysAreFetched) {
  EXPECT_EQ(beat(key.sign(own())), 200);
  const TestKey next = TestKey::rsa("k2");
  published = {next};
  std::this_thread::sleep_for(Time(60));  // longer than the interval between fetches
  EXPECT_EQ(beat(next.sign(own())), 200);
  EXPECT_EQ(beat(key.sign(own())), 401) << "a key that was withdrawn, a token that was good";
}

TEST(TokenGate, ChecksASignatureOncePerTokenHoweverManyWorkers) {
  const TestKey key = TestKey::p256("k1");
  KeyRing ring({}, [&]() -> Result<std::string> { return jwks_of({key}); });
  constexpr int kWorkers = 2100;
  TokenGate gate(
      "tune", {.issuer = kTestIssuer, .audience = kTestAudience, .subject = kTestSubject}, ring,
      [] { return kTestNow; }, kWorkers);
  std::vector<std::string> tokens;
  for (int worker = 0; worker < kWorkers; ++worker) {
    const std::string pod = "tune-worker-" + std::to_string(worker) + "-1";
    tokens.push_back("Bearer " + key.sign(pod_claims(pod, kTestNow)));
  }
  ASSERT_TRUE(soon([&] { return gate.admit(tokens[0]).has_value(); })) << "the key is fetched";
  for (int beat = 0; beat < 2; ++beat) {
    for (const std::string& token : tokens) ASSERT_TRUE(gate.admit(token));
  }
  EXPECT_EQ(gate.checked(), kWorkers);
  // A renewal, while those before it still come.
  for (int worker = 0; worker < kWorkers; ++worker) {
    const std::string pod = "tune-worker-" + std::to_string(worker) + "-1";
    ASSERT_TRUE(gate.admit("Bearer " + key.sign(pod_claims(pod, kTestNow + 1))));
    ASSERT_TRUE(gate.admit(tokens[static_cast<size_t>(worker)]));
  }
  EXPECT_EQ(gate.checked(), 2 * kWorkers);
}

TEST_F(JoinTest, WhileTheApiServerIsAwayAnUnknownKeyIsNeitherLetInNorSentAway) {
  api_away = true;
  EXPECT_EQ(beat(key.sign(own())), 503);
  EXPECT_TRUE(server->take().empty());
  api_away = false;
  EXPECT_EQ(beat(key.sign(own())), 200);
}

}  // namespace
}  // namespace dsj::agent

#include "agent/join/token.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "tests/agent/join/test_tokens.h"

namespace dsj::agent {
namespace {

const TokenRules kRules{.issuer = kTestIssuer, .audience = kTestAudience, .subject = kTestSubject};

struct TokenTest : testing::Test {
  static void SetUpTestSuite() {
    rsa = new TestKey(TestKey::rsa("rsa-1"));
    ec = new TestKey(TestKey::p256("ec-1"));
    keys = new TokenKeys(*TokenKeys::from_jwks(jwks_of({*rsa, *ec}), "keys"));
  }
  static void TearDownTestSuite() {
    delete rsa;
    delete ec;
    delete keys;
  }
  /// What is wrong with a token by its signature; empty: nothing.
  static std::string fault(const std::string& text) {
    const auto token = parse_token(text);
    if (!token) return token.error().message;
    const auto good = keys->verify_signature(*token);
    return good ? "" : good.error().message;
  }
  static std::string claim_fault(const nlohmann::json& claims, int64_t now = kTestNow) {
    const auto token = parse_token(rsa->sign(claims));
    if (!token) return token.error().message;
    const auto good = check_claims(token->claims, kRules, now);
    return good ? "" : good.error().message;
  }
  static nlohmann::json claims() { return pod_claims("tune-worker-1-1", kTestNow); }
  static TestKey *rsa, *ec;
  static TokenKeys* keys;
};
TestKey* TokenTest::rsa = nullptr;
TestKey* TokenTest::ec = nullptr;
TokenKeys* TokenTest::keys = nullptr;

TEST_F(TokenTest, BothAlgorithmsVerifyAndTheClaimsAreRead) {
  ASSERT_EQ(keys->size(), 2u);
  for (const TestKey* key : {rsa, ec}) {
    const std::string text = key->sign(claims());
    EXPECT_EQ(fault(text), "") << key->id;
    const auto token = parse_token(text);
    ASSERT_TRUE(token);
    EXPECT_EQ(token->key_id, key->id);
    EXPECT_EQ(token->claims.pod_name, "tune-worker-1-1");
    EXPECT_EQ(token->claims.pod_uid, "uid-of-tune-worker-1-1");
    EXPECT_EQ(token->claims.service_account, "tune-worker");
    EXPECT_EQ(token->claims.ns, "team");
    EXPECT_EQ(token->claims.expires, kTestNow + 3600);
  }
}

TEST_F(TokenTest, EveryChangedByteOfAPartBreaksIt) {
  for (const TestKey* key : {rsa, ec}) {
    const std::string good = key->sign(claims());
    int broken = 0;
    for (size_t i = 0; i < good.size(); i += 7) {
      std::string bad = good;
      bad[i] = bad[i] == 'A' ? 'B' : 'A';
      EXPECT_NE(fault(bad), "") << key->id << " at " << i;
      ++broken;
    }
    EXPECT_GT(broken, 40);
  }
}

TEST_F(TokenTest, AlgorithmsThatAreNotOursNeverVerify) {
  const std::string body = base64url(claims().dump());
  EXPECT_NE(fault(base64url(R"({"alg":"none","kid":"rsa-1"})") + "." + body + "."), "");
  EXPECT_NE(fault(base64url(R"({"alg":"None","kid":"rsa-1"})") + "." + body + "."), "");
  EXPECT_NE(fault(base64url(R"({"kid":"rsa-1"})") + "." + body + "."), "");
  // HMAC with the public key as its secret, the old confusion of algorithms.
  EXPECT_NE(fault(rsa->sign(claims(), {{"alg", "HS256"}})), "");
  // A key is for its own algorithm only.
  EXPECT_EQ(fault(ec->sign(claims(), {{"kid", "rsa-1"}})), "its key is for another algorithm");
  EXPECT_NE(fault(rsa->sign(claims(), {{"alg", "ES256"}})), "");
  EXPECT_NE(fault(rsa->sign(claims(), {{"crit", {"exp"}}})), "");
}

/// The old confusion of algorithms, for real: an HMAC whose secret everybody knows.
TEST_F(TokenTest, AnHmacByThePublicKeyIsNoSignature) {
  for (const TestKey* key : {rsa, ec}) {
    const std::string head = base64url(R"({"alg":"HS256","kid":")" + key->id + "\"}");
    const std::string signed_part = head + "." + base64url(claims().dump());
    for (const std::string& secret :
         {key->jwk().dump(), key->jwk().value("n", ""), key->jwk().value("x", ""), std::string()}) {
      unsigned char mac[EVP_MAX_MD_SIZE];
      unsigned size = 0;
      HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(signed_part.data()), signed_part.size(), mac,
           &size);
      const std::string made(reinterpret_cast<const char*>(mac), size);
      EXPECT_NE(fault(signed_part + "." + base64url(made)), "") << key->id;
    }
  }
}

TEST_F(TokenTest, AnotherClustersKeyIsNotKnown) {
  EXPECT_EQ(fault(TestKey::p256("other").sign(claims())), "its key \"other\" is not known");
  EXPECT_EQ(fault(TestKey::p256("ec-1").sign(claims())), "its signature is wrong");
}

TEST_F(TokenTest, WhatIsNoTokenIsRefused) {
  for (const std::string& text :
       {std::string(), std::string("a.b"), std::string("a.b.c.d"), std::string(".."),
        std::string("e30.e30."), std::string("{}.{}.{}"), std::string(kTokenBytesMax + 1, 'A'),
        base64url("[1]") + ".e30.e30"}) {
    EXPECT_NE(fault(text), "") << text.substr(0, 40);
  }
}

TEST_F(TokenTest, WeakAndForeignKeysAreLeftOut) {
  auto set = nlohmann::json::parse(jwks_of({TestKey::rsa("weak", 1024), *ec}));
  set["keys"].push_back({{"kty", "oct"}, {"kid", "secret"}, {"k", "AAAA"}});
  set["keys"].push_back(
      {{"kty", "EC"}, {"crv", "P-256"}, {"kid", "off"}, {"x", "AA"}, {"y", "AA"}});
  auto off_curve = ec->jwk();
  off_curve["kid"] = "off-curve";
  off_curve["y"] = off_curve["x"];
  set["keys"].push_back(off_curve);
  const auto read = TokenKeys::from_jwks(set.dump(), "keys");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->size(), 1u);
  EXPECT_TRUE(read->has("ec-1"));
  EXPECT_FALSE(TokenKeys::from_jwks("{}", "keys"));
  EXPECT_FALSE(TokenKeys::from_jwks("<html>", "keys"));
}

TEST_F(TokenTest, ClaimsMustAllBeThisJobs) {
  EXPECT_EQ(claim_fault(claims()), "");
  const auto changed = [](const char* key, nlohmann::json value) {
    auto claims = pod_claims("tune-worker-1-1", kTestNow);
    claims[key] = std::move(value);
    return claims;
  };
  EXPECT_NE(claim_fault(changed("iss", "https://elsewhere")), "");
  EXPECT_NE(claim_fault(changed("aud", {"https://kubernetes.default.svc"})), "");
  EXPECT_NE(claim_fault(changed("aud", "training.dsj.dev/job/uid-2")), "") << "another job";
  EXPECT_NE(claim_fault(changed("aud", nullptr)), "");
  EXPECT_EQ(claim_fault(changed("aud", kTestAudience)), "") << "one audience as a string";
  EXPECT_NE(claim_fault(changed("sub", "system:serviceaccount:team:other-worker")), "");
  EXPECT_NE(claim_fault(changed("exp", nullptr)), "") << "a token without an end";
  EXPECT_NE(claim_fault(changed("exp", -5)), "");
  EXPECT_NE(claim_fault(changed("kubernetes.io", {{"namespace", "team"}})), "") << "no pod";
  EXPECT_NE(claim_fault(changed("kubernetes.io", "x")), "");
}

TEST_F(TokenTest, TimesHoldUpToTheSkew) {
  EXPECT_EQ(claim_fault(claims(), kTestNow - 30), "");
  EXPECT_EQ(claim_fault(claims(), kTestNow - 31), "it is not valid yet");
  EXPECT_EQ(claim_fault(claims(), kTestNow + 3600 + 29), "");
  EXPECT_EQ(claim_fault(claims(), kTestNow + 3600 + 30), "it has expired");
}

}  // namespace
}  // namespace dsj::agent

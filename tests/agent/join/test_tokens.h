// Keys and tokens as an API server would make them, for tests.
#pragma once

#include <openssl/types.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace dsj::agent {

class TestKey {
 public:
  static TestKey rsa(const std::string& id, int bits = 2048);
  static TestKey p256(const std::string& id);
  /// Its public half.
  nlohmann::json jwk() const;
  /// Signed with its own algorithm; `header` is merged over {"alg", "kid"}.
  std::string sign(const nlohmann::json& claims,
                   const nlohmann::json& header = nlohmann::json::object()) const;

  std::string id;

 private:
  std::shared_ptr<EVP_PKEY> key_;
  std::string algorithm_;
};

std::string jwks_of(const std::vector<TestKey>& keys);
std::string base64url(const std::string& bytes);

/// Claims of a token that the kubelet projects into a pod.
nlohmann::json pod_claims(const std::string& pod, int64_t now);
inline constexpr int64_t kTestNow = 1'767'225'600;
inline constexpr char kTestIssuer[] = "https://kubernetes.default.svc";
inline constexpr char kTestAudience[] = "training.dsj.dev/job/uid-1";
inline constexpr char kTestSubject[] = "system:serviceaccount:team:tune-worker";

}  // namespace dsj::agent

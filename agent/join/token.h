// Service account tokens as the API server signs them: parsing, and checks against the cluster's
// public keys and against what this job expects. RFC 7515 to 7519, RS256 and ES256 only. Pure.
#pragma once

#include <openssl/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace dsj::agent {

/// A longer text is not accepted as a token.
inline constexpr size_t kTokenBytesMax = 16 * 1024;

struct TokenClaims {
  std::string issuer, subject;
  std::vector<std::string> audiences;
  int64_t expires = 0;                 ///< seconds since 1970; 0 if there is no such claim
  int64_t issued = 0, not_before = 0;  ///< 0 if absent
  std::string ns, service_account, pod_name, pod_uid;  ///< from kubernetes.io; empty if absent
};

struct Token {
  std::string algorithm, key_id;
  TokenClaims claims;  ///< not trustworthy before verify_signature()
  std::string signed_part, signature;
};

/// Parses three parts of base64url, of which the first two are JSON objects. Refuses any other
/// shape and any other algorithm, in particular "none".
Result<Token> parse_token(std::string_view text);

/// Public keys by key id.
class TokenKeys {
 public:
  TokenKeys() = default;
  /// Reads a JWK set. Keeps RSA keys of at least 2048 bits and P-256 keys, and drops others.
  /// BadInput: the text is not a key set.
  static Result<TokenKeys> from_jwks(const std::string& text, const std::string& where);
  bool has(const std::string& key_id) const { return keys_.contains(key_id); }
  size_t size() const { return keys_.size(); }
  /// Ok if the token was signed by the key that it names, with that key's algorithm.
  Status verify_signature(const Token& token) const;

 private:
  struct Key {
    std::shared_ptr<EVP_PKEY> key;
    std::string algorithm;
  };
  std::map<std::string, Key> keys_;
};

struct TokenRules {
  std::string issuer, audience, subject;
  int64_t skew = 30;  ///< seconds that clocks may differ by
};

/// Checks the claims. The error names the first wrong claim. A token without an expiry or without a
/// pod is refused.
Status check_claims(const TokenClaims& claims, const TokenRules& rules, int64_t now);

}  // namespace dsj::agent

#include "tests/agent/join/test_tokens.h"

#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>

#include "common/check.h"

namespace dsj::agent {
namespace {

using nlohmann::json;

std::string bytes_of(const BIGNUM* number, size_t size) {
  std::string bytes(size, '\0');
  BN_bn2binpad(number, reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(size));
  return bytes;
}

std::string number_param(EVP_PKEY* key, const char* name, size_t size) {
  BIGNUM* number = nullptr;
  DSJ_CHECK(EVP_PKEY_get_bn_param(key, name, &number) == 1, "no %s", name);
  const std::string bytes =
      bytes_of(number, size ? size : static_cast<size_t>(BN_num_bytes(number)));
  BN_free(number);
  return bytes;
}

/// r and s of a DER signature, side by side.
std::string plain_signature(const std::string& der) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
  ECDSA_SIG* pair = d2i_ECDSA_SIG(nullptr, &bytes, static_cast<long>(der.size()));
  const std::string plain =
      bytes_of(ECDSA_SIG_get0_r(pair), 32) + bytes_of(ECDSA_SIG_get0_s(pair), 32);
  ECDSA_SIG_free(pair);
  return plain;
}

}  // namespace

std::string base64url(const std::string& bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string text;
  unsigned bits = 0;
  int held = 0;
  for (const char c : bytes) {
    bits = (bits << 8) | static_cast<unsigned char>(c);
    for (held += 8; held >= 6; held -= 6) text += kDigits[(bits >> (held - 6)) & 63];
  }
  if (held > 0) text += kDigits[(bits << (6 - held)) & 63];
  return text;
}

TestKey TestKey::rsa(const std::string& id, int bits) {
  TestKey key;
  key.id = id;
  key.key_ = {EVP_RSA_gen(static_cast<unsigned>(bits)), EVP_PKEY_free};
  key.algorithm_ = "RS256";
  return key;
}

TestKey TestKey::p256(const std::string& id) {
  TestKey key;
  key.id = id;
  key.key_ = {EVP_EC_gen("P-256"), EVP_PKEY_free};
  key.algorithm_ = "ES256";
  return key;
}

json TestKey::jwk() const {
  if (algorithm_ == "RS256") {
    return {{"kty", "RSA"},
            {"use", "sig"},
            {"alg", algorithm_},
            {"kid", id},
            {"n", base64url(number_param(key_.get(), OSSL_PKEY_PARAM_RSA_N, 0))},
            {"e", base64url(number_param(key_.get(), OSSL_PKEY_PARAM_RSA_E, 0))}};
  }
  return {{"kty", "EC"},
          {"crv", "P-256"},
          {"kid", id},
          {"x", base64url(number_param(key_.get(), OSSL_PKEY_PARAM_EC_PUB_X, 32))},
          {"y", base64url(number_param(key_.get(), OSSL_PKEY_PARAM_EC_PUB_Y, 32))}};
}

std::string TestKey::sign(const json& claims, const json& header) const {
  json head = {{"alg", algorithm_}, {"kid", id}};
  head.update(header);
  const std::string text = base64url(head.dump()) + "." + base64url(claims.dump());
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  std::string signature(1024, '\0');
  size_t size = signature.size();
  DSJ_CHECK(
      EVP_DigestSignInit(context, nullptr, EVP_sha256(), nullptr, key_.get()) == 1 &&
          EVP_DigestSign(context, reinterpret_cast<unsigned char*>(signature.data()), &size,
                         reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1,
      "cannot sign");
  EVP_MD_CTX_free(context);
  signature.resize(size);
  if (algorithm_ == "ES256") signature = plain_signature(signature);
  return text + "." + base64url(signature);
}

std::string jwks_of(const std::vector<TestKey>& keys) {
  json set = {{"keys", json::array()}};
  for (const auto& key : keys) set["keys"].push_back(key.jwk());
  return set.dump();
}

json pod_claims(const std::string& pod, int64_t now) {
  return {{"iss", kTestIssuer},
          {"sub", kTestSubject},
          {"aud", {kTestAudience}},
          {"iat", now},
          {"nbf", now},
          {"exp", now + 3600},
          {"kubernetes.io",
           {{"namespace", "team"},
            {"pod", {{"name", pod}, {"uid", "uid-of-" + pod}}},
            {"serviceaccount", {{"name", "tune-worker"}, {"uid", "sa-1"}}}}}};
}

}  // namespace dsj::agent

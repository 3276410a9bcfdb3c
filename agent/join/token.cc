#include "agent/join/token.h"

#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace dsj::agent {
namespace {

using nlohmann::json;

constexpr int kRsaBitsMin = 2048;
constexpr size_t kCoordinateBytes = 32;

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
template <typename T, auto Free>
using Owned = std::unique_ptr<T, Freer<Free>>;
using BigNumber = Owned<BIGNUM, BN_free>;

std::unexpected<Error> refused(std::string message) {
  return bad_input(std::move(message), "token");
}

int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '-') return 62;
  return c == '_' ? 63 : -1;
}

/// Decodes without padding. Accepts only the canonical form, so that no two texts decode to the
/// same bytes.
std::optional<std::string> from_base64url(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  unsigned bits = 0;
  int held = 0;
  for (const char c : text) {
    const int digit = digit_of(c);
    if (digit < 0) return std::nullopt;
    bits = (bits << 6) | static_cast<unsigned>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>((bits >> held) & 0xff);
  }
  if (held >= 6 || (bits & ((1U << held) - 1)) != 0) return std::nullopt;
  return bytes;
}

std::optional<json> object_from(std::string_view part) {
  const auto text = from_base64url(part);
  if (!text) return std::nullopt;
  json object = json::parse(*text, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  return object;
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t seconds_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return 0;
  return std::max<int64_t>(0, found->get<int64_t>());
}

TokenClaims claims_of(const json& payload) {
  TokenClaims claims{.issuer = text_of(payload, "iss"),
                     .subject = text_of(payload, "sub"),
                     .expires = seconds_of(payload, "exp"),
                     .issued = seconds_of(payload, "iat"),
                     .not_before = seconds_of(payload, "nbf")};
  if (const auto audience = payload.find("aud"); audience != payload.end()) {
    if (audience->is_string()) claims.audiences.push_back(*audience);
    if (audience->is_array()) {
      for (const auto& entry : *audience) {
        if (entry.is_string()) claims.audiences.push_back(entry);
      }
    }
  }
  const json cluster = payload.value("kubernetes.io", json::object());
  if (!cluster.is_object()) return claims;
  claims.ns = text_of(cluster, "namespace");
  const auto part = [&](const char* name) {
    const auto found = cluster.find(name);
    return found != cluster.end() && found->is_object() ? *found : json::object();
  };
  claims.service_account = text_of(part("serviceaccount"), "name");
  claims.pod_name = text_of(part("pod"), "name");
  claims.pod_uid = text_of(part("pod"), "uid");
  return claims;
}

std::shared_ptr<EVP_PKEY> key_from(const char* type, OSSL_PARAM_BLD* builder) {
  const Owned<OSSL_PARAM, OSSL_PARAM_free> params(OSSL_PARAM_BLD_to_param(builder));
  const Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free> context(
      EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
  EVP_PKEY* key = nullptr;
  if (!params || !context || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, params.get()) != 1) {
    return nullptr;
  }
  return {key, EVP_PKEY_free};
}

BigNumber number_from(const std::string& bytes) {
  return BigNumber(BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes.data()),
                             static_cast<int>(bytes.size()), nullptr));
}

std::shared_ptr<EVP_PKEY> rsa_key(const json& jwk) {
  const auto modulus = from_base64url(text_of(jwk, "n"));
  const auto exponent = from_base64url(text_of(jwk, "e"));
  if (!modulus || !exponent || modulus->empty() || exponent->empty()) return nullptr;
  const BigNumber n = number_from(*modulus), e = number_from(*exponent);
  const Owned<OSSL_PARAM_BLD, OSSL_PARAM_BLD_free> builder(OSSL_PARAM_BLD_new());
  if (OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, n.get()) != 1 ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, e.get()) != 1) {
    return nullptr;
  }
  auto key = key_from("RSA", builder.get());
  return key && EVP_PKEY_get_bits(key.get()) >= kRsaBitsMin ? key : nullptr;
}

std::shared_ptr<EVP_PKEY> p256_key(const json& jwk) {
  const auto x = from_base64url(text_of(jwk, "x")), y = from_base64url(text_of(jwk, "y"));
  if (text_of(jwk, "crv") != "P-256" || !x || !y || x->size() != kCoordinateBytes ||
      y->size() != kCoordinateBytes) {
    return nullptr;
  }
  const std::string point = "\x04" + *x + *y;
  const Owned<OSSL_PARAM_BLD, OSSL_PARAM_BLD_free> builder(OSSL_PARAM_BLD_new());
  if (OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) !=
          1 ||
      OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(),
                                       point.size()) != 1) {
    return nullptr;
  }
  return key_from("EC", builder.get());
}

/// ES256 signatures are r and s concatenated; OpenSSL needs DER. Empty if the size is not 64 bytes.
std::string der_of(const std::string& signature) {
  if (signature.size() != 2 * kCoordinateBytes) return {};
  const Owned<ECDSA_SIG, ECDSA_SIG_free> pair(ECDSA_SIG_new());
  BigNumber r = number_from(signature.substr(0, kCoordinateBytes));
  BigNumber s = number_from(signature.substr(kCoordinateBytes));
  if (ECDSA_SIG_set0(pair.get(), r.get(), s.get()) != 1) return {};
  std::ignore = r.release();
  std::ignore = s.release();
  unsigned char* bytes = nullptr;
  const int size = i2d_ECDSA_SIG(pair.get(), &bytes);
  if (size <= 0) return {};
  std::string der(reinterpret_cast<char*>(bytes), static_cast<size_t>(size));
  OPENSSL_free(bytes);
  return der;
}

}  // namespace

Result<Token> parse_token(std::string_view text) {
  if (text.size() > kTokenBytesMax) return refused("it is too long");
  const size_t first = text.find('.');
  const size_t second = first == text.npos ? text.npos : text.find('.', first + 1);
  if (second == text.npos || text.find('.', second + 1) != text.npos) {
    return refused("it does not have three parts");
  }
  const auto header = object_from(text.substr(0, first));
  const auto payload = object_from(text.substr(first + 1, second - first - 1));
  const auto signature = from_base64url(text.substr(second + 1));
  if (!header || !payload || !signature) return refused("a part of it cannot be read");
  const std::string algorithm = text_of(*header, "alg");
  if (algorithm != "RS256" && algorithm != "ES256") {
    return refused("its algorithm \"" + algorithm + "\" is neither RS256 nor ES256");
  }
  if (header->contains("crit")) return refused("its header requires unsupported extensions (crit)");
  return Token{.algorithm = algorithm,
               .key_id = text_of(*header, "kid"),
               .claims = claims_of(*payload),
               .signed_part = std::string(text.substr(0, second)),
               .signature = *signature};
}

Result<TokenKeys> TokenKeys::from_jwks(const std::string& text, const std::string& where) {
  const json set = json::parse(text, nullptr, false);
  if (!set.is_object() || !set.contains("keys") || !set["keys"].is_array()) {
    return bad_input("expected a JWK set: an object with \"keys\"", where);
  }
  TokenKeys result;
  for (const auto& jwk : set["keys"]) {
    if (!jwk.is_object()) continue;
    const std::string type = text_of(jwk, "kty"), use = text_of(jwk, "use");
    if (!use.empty() && use != "sig") continue;
    const bool rsa = type == "RSA";
    auto key = rsa ? rsa_key(jwk) : type == "EC" ? p256_key(jwk) : nullptr;
    if (key) result.keys_[text_of(jwk, "kid")] = {std::move(key), rsa ? "RS256" : "ES256"};
  }
  return result;
}

Status TokenKeys::verify_signature(const Token& token) const {
  const auto found = keys_.find(token.key_id);
  if (found == keys_.end()) return refused("its key \"" + token.key_id + "\" is not known");
  const Key& key = found->second;
  if (key.algorithm != token.algorithm) return refused("its key is for another algorithm");
  const std::string signature =
      key.algorithm == "ES256" ? der_of(token.signature) : token.signature;
  const Owned<EVP_MD_CTX, EVP_MD_CTX_free> context(EVP_MD_CTX_new());
  const bool good =
      !signature.empty() &&
      EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key.key.get()) == 1 &&
      EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                       signature.size(),
                       reinterpret_cast<const unsigned char*>(token.signed_part.data()),
                       token.signed_part.size()) == 1;
  if (!good) return refused("its signature is wrong");
  return {};
}

Status check_claims(const TokenClaims& claims, const TokenRules& rules, int64_t now) {
  if (claims.issuer != rules.issuer) {
    return refused("it was issued by \"" + claims.issuer + "\", not by this cluster");
  }
  if (std::ranges::find(claims.audiences, rules.audience) == claims.audiences.end()) {
    return refused("it is for another audience");
  }
  if (claims.expires == 0 || now - rules.skew >= claims.expires) return refused("it has expired");
  if (claims.not_before > now + rules.skew) return refused("it is not valid yet");
  if (claims.subject != rules.subject) {
    return refused("it belongs to \"" + claims.subject + "\", not to this job's service account");
  }
  if (claims.pod_name.empty() || claims.pod_uid.empty()) return refused("it is not bound to a pod");
  return {};
}

}  // namespace dsj::agent

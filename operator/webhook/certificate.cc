#include "operator/webhook/certificate.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <memory>

#include "common/net_address.h"

namespace dsj::op {
namespace {

template <auto F>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    F(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Bio = std::unique_ptr<BIO, Free<BIO_free_all>>;
using Extension = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using Serial = std::unique_ptr<BIGNUM, Free<BN_free>>;

constexpr size_t kCommonNameMax = 64;  // X.520
constexpr std::chrono::hours kBackdated{1};

std::unexpected<Error> failed(const char* what) {
  char text[256] = "";
  ERR_error_string_n(ERR_get_error(), text, sizeof text);
  return fail(ErrorKind::Internal, std::string("OpenSSL cannot ") + what + ": " + text);
}

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<size_t>(size));
}

std::string to_pem(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  return text_of(bio.get());
}

bool add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool set_subject(X509* certificate, const std::string& organization,
                 const std::string& common_name) {
  X509_NAME* name = X509_get_subject_name(certificate);
  auto add = [&](const char* field, const std::string& value) {
    return X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8,
                                      reinterpret_cast<const unsigned char*>(value.data()),
                                      static_cast<int>(value.size()), -1, 0) == 1;
  };
  return add("O", organization) && add("CN", common_name);
}

/// A certificate without extensions or signature.
Certificate blank(EVP_PKEY* key, const char* organization, const std::string& common_name,
                  WallTime from, WallTime to) {
  Certificate certificate(X509_new());
  const Serial serial(BN_new());
  const bool good = certificate && serial && X509_set_version(certificate.get(), 2) == 1 &&
                    BN_rand(serial.get(), 127, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
                    BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate.get())) &&
                    X509_set_pubkey(certificate.get(), key) == 1 &&
                    set_subject(certificate.get(), organization, common_name) &&
                    ASN1_TIME_set(X509_getm_notBefore(certificate.get()),
                                  std::chrono::system_clock::to_time_t(from)) &&
                    ASN1_TIME_set(X509_getm_notAfter(certificate.get()),
                                  std::chrono::system_clock::to_time_t(to));
  return good ? std::move(certificate) : nullptr;
}

std::string alternative_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ",") + std::string(is_ip_address(name) ? "IP:" : "DNS:") + name;
  }
  return text;
}

std::string entry_of(X509_NAME* name, int kind) {
  char text[256] = "";
  const int size = X509_NAME_get_text_by_NID(name, kind, text, sizeof text);
  return size <= 0 ? "" : std::string(text, static_cast<size_t>(size));
}

WallTime time_of(const ASN1_TIME* time) {
  tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return {};
  return std::chrono::system_clock::from_time_t(timegm(&parts));
}

}  // namespace

std::string common_name_of(const std::string& identity) {
  const size_t size = identity.size();
  return size > kCommonNameMax ? identity.substr(size - kCommonNameMax) : identity;
}

Result<ServerCertificate> issue_certificate(const std::vector<std::string>& names,
                                            const std::string& identity, WallTime now,
                                            std::chrono::seconds lifetime,
                                            const char* organization) {
  const WallTime from = now - kBackdated, to = now + lifetime;
  const Key authority_key(EVP_EC_gen("P-256")), key(EVP_EC_gen("P-256"));
  if (!authority_key || !key) return failed("make a key");
  const Certificate authority =
      blank(authority_key.get(), organization, common_name_of(identity), from, to);
  const Certificate server = blank(key.get(), organization, "server", from, to);
  if (!authority || !server) return failed("make a certificate");
  X509_set_issuer_name(authority.get(), X509_get_subject_name(authority.get()));
  X509_set_issuer_name(server.get(), X509_get_subject_name(authority.get()));
  const bool signed_both =
      add_extension(authority.get(), authority.get(), NID_basic_constraints,
                    "critical,CA:TRUE,pathlen:0") &&
      add_extension(authority.get(), authority.get(), NID_key_usage, "critical,keyCertSign") &&
      add_extension(authority.get(), authority.get(), NID_subject_key_identifier, "hash") &&
      X509_sign(authority.get(), authority_key.get(), EVP_sha256()) > 0 &&
      add_extension(server.get(), authority.get(), NID_basic_constraints, "critical,CA:FALSE") &&
      add_extension(server.get(), authority.get(), NID_key_usage, "critical,digitalSignature") &&
      add_extension(server.get(), authority.get(), NID_ext_key_usage, "serverAuth") &&
      add_extension(server.get(), authority.get(), NID_authority_key_identifier, "keyid") &&
      add_extension(server.get(), authority.get(), NID_subject_alt_name,
                    alternative_names(names)) &&
      X509_sign(server.get(), authority_key.get(), EVP_sha256()) > 0;
  if (!signed_both) return failed("sign a certificate");
  const Bio bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return failed("write a key");
  }
  return ServerCertificate{.authority_pem = to_pem(authority.get()),
                           .chain_pem = to_pem(server.get()),
                           .key_pem = text_of(bio.get()),
                           .not_after = to};
}

std::vector<Authority> read_authorities(const std::string& pem) {
  std::vector<Authority> authorities;
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  for (;;) {
    const Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (!certificate) {
      // At the end this is "no start line". In the middle it is a block that is not a certificate:
      // skip it.
      const bool end = BIO_pending(bio.get()) == 0;
      ERR_clear_error();
      if (end) return authorities;
      continue;
    }
    X509_NAME* name = X509_get_subject_name(certificate.get());
    Authority authority{.pem = to_pem(certificate.get()),
                        .ours = entry_of(name, NID_organizationName) == kAuthorityOrganization,
                        .not_after = time_of(X509_get0_notAfter(certificate.get()))};
    if (authority.ours) authority.identity = entry_of(name, NID_commonName);
    authorities.push_back(std::move(authority));
  }
}

}  // namespace dsj::op

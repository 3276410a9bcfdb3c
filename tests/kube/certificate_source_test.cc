#include "kube/certificate_source.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>

#include <fstream>

namespace dsj::kube {
namespace {

struct Pair {
  std::string certificate, key;
};

std::string text_of(BIO* memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(memory);
  return text;
}

/// A certificate that signs itself; `traditional`: the key as PKCS#1 or SEC 1, else PKCS#8.
Pair make_pair(bool rsa, bool traditional = false) {
  EVP_PKEY* key = rsa ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_sign(certificate, key, EVP_sha256());
  Pair pair;
  BIO* memory = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(memory, certificate);
  pair.certificate = text_of(memory);
  memory = BIO_new(BIO_s_mem());
  if (traditional) {
    PEM_write_bio_PrivateKey_traditional(memory, key, nullptr, nullptr, 0, nullptr, nullptr);
  } else {
    PEM_write_bio_PrivateKey(memory, key, nullptr, nullptr, 0, nullptr, nullptr);
  }
  pair.key = text_of(memory);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return pair;
}

TEST(FitTogether, KeysOfBothKindsInBothForms) {
  for (const bool rsa : {false, true}) {
    for (const bool traditional : {false, true}) {
      const Pair pair = make_pair(rsa, traditional);
      EXPECT_TRUE(fit_together(pair.certificate, pair.key)) << pair.key.substr(0, 40);
    }
  }
  EXPECT_FALSE(fit_together(make_pair(false).certificate, make_pair(false).key));
  EXPECT_FALSE(fit_together(make_pair(false).certificate, make_pair(true).key));
  EXPECT_FALSE(fit_together("", make_pair(true).key));
  EXPECT_FALSE(fit_together(make_pair(true).certificate, "not a key"));
}

class RotatedFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    access_.client_certificate_file = ::testing::TempDir() + "/rotated.crt";
    access_.client_key_file = ::testing::TempDir() + "/rotated.key";
    first_ = make_pair(false);
    access_.client_certificate_pem = first_.certificate;
    access_.client_key_pem = first_.key;
    write(access_.client_certificate_file, first_.certificate);
    write(access_.client_key_file, first_.key);
  }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  Access access_;
  Pair first_;
  const CertificateSource::Clock::time_point later_ =
      CertificateSource::Clock::now() + std::chrono::seconds(11);
};

TEST_F(RotatedFiles, AreReadAgainAfterAWhile) {
  CertificateSource source(access_);
  const Pair second = make_pair(true);
  write(access_.client_certificate_file, second.certificate);
  write(access_.client_key_file, second.key);
  EXPECT_EQ(source.current()->client_key_pem, first_.key);
  const auto changed = source.current(later_);
  EXPECT_EQ(changed->client_key_pem, second.key);
  EXPECT_EQ(changed->client_certificate_pem, second.certificate);
  EXPECT_EQ(changed->generation, 1);
  EXPECT_EQ(source.current(later_ + std::chrono::seconds(11))->generation, 1);
}

TEST_F(RotatedFiles, AreReadAtOnceAfterARefusal) {
  CertificateSource source(access_);
  const Pair second = make_pair(false);
  write(access_.client_certificate_file, second.certificate);
  write(access_.client_key_file, second.key);
  source.refused();
  EXPECT_EQ(source.current()->client_key_pem, second.key);
}

TEST_F(RotatedFiles, AreNotTakenHalfWritten) {
  CertificateSource source(access_);
  const Pair second = make_pair(false);
  write(access_.client_certificate_file, second.certificate);
  EXPECT_EQ(source.current(later_)->client_certificate_pem, first_.certificate);
  write(access_.client_key_file, second.key);
  EXPECT_EQ(source.current(later_ + std::chrono::seconds(11))->client_key_pem, second.key);
}

TEST_F(RotatedFiles, InlineOnesStay) {
  access_.client_certificate_file.clear();
  access_.client_key_file.clear();
  CertificateSource source(access_);
  source.refused();
  EXPECT_EQ(source.current()->generation, 0);
}

}  // namespace
}  // namespace dsj::kube

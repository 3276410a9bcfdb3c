// The bundle of authorities and the life of a certificate, by the clock.
#include "operator/webhook/rotation.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>

namespace dsj::op {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

const WallTime kNow = std::chrono::system_clock::from_time_t(1'800'000'000);

std::string authority(const std::string& identity, WallTime made) {
  return issue_certificate({"s.n.svc"}, identity, made, kLifetime)->authority_pem;
}

std::shared_ptr<X509> read(const std::string& pem) {
  BIO* bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  std::shared_ptr<X509> certificate(PEM_read_bio_X509(bio, nullptr, nullptr, nullptr), X509_free);
  BIO_free(bio);
  return certificate;
}

/// OpenSSL's own verdict on `chain` with `bundle` as the roots.
bool trusted(const std::string& bundle, const std::string& chain, const std::string& host,
             WallTime at) {
  X509_STORE* store = X509_STORE_new();
  for (const Authority& root : read_authorities(bundle)) {
    X509_STORE_add_cert(store, read(root.pem).get());
  }
  const auto server = read(chain);
  X509_STORE_CTX* context = X509_STORE_CTX_new();
  X509_STORE_CTX_init(context, store, server.get(), nullptr);
  X509_VERIFY_PARAM* wanted = X509_STORE_CTX_get0_param(context);
  X509_VERIFY_PARAM_set1_host(wanted, host.data(), host.size());
  X509_VERIFY_PARAM_set_purpose(wanted, X509_PURPOSE_SSL_SERVER);
  X509_VERIFY_PARAM_set_time(wanted, std::chrono::system_clock::to_time_t(at));
  const bool good = X509_verify_cert(context) == 1;
  X509_STORE_CTX_free(context);
  X509_STORE_free(store);
  return good;
}

TEST(Certificate, IsTrustedByItsAuthorityForItsNamesAndItsTime) {
  const auto made = issue_certificate({"s.n.svc", "127.0.0.1"}, "pod-1", kNow, kLifetime);
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_TRUE(trusted(made->authority_pem, made->chain_pem, "s.n.svc", kNow));
  EXPECT_TRUE(trusted(made->authority_pem, made->chain_pem, "s.n.svc", kNow - minutes(30)))
      << "another clock is behind";
  EXPECT_FALSE(trusted(made->authority_pem, made->chain_pem, "other.n.svc", kNow));
  EXPECT_FALSE(
      trusted(made->authority_pem, made->chain_pem, "s.n.svc", kNow + kLifetime + hours(1)));
  EXPECT_FALSE(trusted(authority("pod-1", kNow), made->chain_pem, "s.n.svc", kNow))
      << "an authority of the same name with another key";
  EXPECT_NE(made->key_pem.find("PRIVATE KEY"), std::string::npos);
  EXPECT_EQ(made->authority_pem.find("PRIVATE KEY"), std::string::npos);
  EXPECT_EQ(EVP_PKEY_bits(X509_get0_pubkey(read(made->chain_pem).get())), 256);
}

TEST(Certificate, LongIdentitiesKeepTheirEnd) {
  const std::string identity = std::string(100, 'x') + "-7d9c5-abcde";
  const auto found = read_authorities(authority(identity, kNow));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].ours);
  EXPECT_EQ(found[0].identity, common_name_of(identity));
  EXPECT_TRUE(found[0].identity.ends_with("-7d9c5-abcde"));
}

TEST(Bundle, TakesInWhatIsMissingAndThenStays) {
  const std::string one = authority("one", kNow), two = authority("two", kNow);
  const std::string first = merge_bundle("", "one", {one}, kNow);
  EXPECT_EQ(first, one);
  const std::string both = merge_bundle(first, "two", {two}, kNow);
  EXPECT_EQ(read_authorities(both).size(), 2u);
  // Each replica looks again and again: nobody writes.
  EXPECT_EQ(merge_bundle(both, "one", {one}, kNow), both);
  EXPECT_EQ(merge_bundle(both, "two", {two}, kNow), both);
}

TEST(Bundle, DropsTheDeadAndKeepsTheOthers) {
  const std::string mine = authority("one", kNow);
  const std::string before_restart = authority("one", kNow - hours(2));
  const std::string ended = authority("gone", kNow - kLifetime - hours(1));
  const std::string alive = authority("two", kNow - hours(3));
  const std::string bundle =
      merge_bundle(before_restart + ended + "# a word\n" + alive + alive, "one", {mine}, kNow);
  EXPECT_EQ(bundle, alive + mine);
}

/// A certificate of another organization.
std::string foreign_authority() {
  const std::shared_ptr<EVP_PKEY> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const auto certificate = read(authority("one", kNow));
  X509_NAME* name = X509_NAME_new();
  const std::string words = "A company";
  X509_NAME_add_entry_by_txt(name, "O", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(words.data()), -1, -1, 0);
  X509_set_subject_name(certificate.get(), name);
  X509_NAME_free(name);
  X509_set_pubkey(certificate.get(), key.get());
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, certificate.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string pem(data, static_cast<size_t>(size));
  BIO_free(bio);
  return pem;
}

TEST(Bundle, LeavesTheAuthoritiesOfOthersAlone) {
  const std::string foreign = foreign_authority(), mine = authority("one", kNow);
  EXPECT_EQ(merge_bundle(foreign, "one", {mine}, kNow), foreign + mine);
  std::string many;
  for (int i = 0; i < 70; ++i) many += foreign_authority();
  EXPECT_EQ(read_authorities(merge_bundle(many, "one", {mine}, kNow)).size(), 71u);
}

TEST(Bundle, GarbageIsNotKept) {
  const std::string mine = authority("one", kNow);
  const std::string broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  EXPECT_EQ(merge_bundle(broken, "one", {mine}, kNow), mine);
  EXPECT_EQ(merge_bundle("no PEM at all", "one", {mine}, kNow), mine);
  EXPECT_EQ(merge_bundle(broken + mine + broken, "one", {mine}, kNow), mine);
  EXPECT_EQ(merge_bundle(mine.substr(0, mine.size() / 2), "one", {mine}, kNow), mine);
}

TEST(Bundle, HasABound) {
  std::string bundle;
  for (int i = 0; i < 80; ++i) {
    bundle =
        merge_bundle(bundle, "p" + std::to_string(i),
                     {authority("p" + std::to_string(i), kNow + minutes(i))}, kNow + minutes(i));
  }
  const auto left = read_authorities(bundle);
  ASSERT_EQ(left.size(), kAuthoritiesMax);
  EXPECT_EQ(left.front().identity, "p16") << "those that end first are gone";
  EXPECT_EQ(left.back().identity, "p79");
}

TEST(Rotation, ShowsTheNextOnlyWhenItWasPublishedForAWhile) {
  Rotation rotation({"s.n.svc"}, "one");
  ASSERT_EQ(rotation.advance(kNow), true);
  std::string bundle = merge_bundle("", "one", rotation.wanted(), kNow);
  const std::string first = rotation.shown().authority_pem;
  int shown = 0;
  for (WallTime now = kNow; now < kNow + 5 * kLifetime; now += minutes(20)) {
    ASSERT_TRUE(rotation.advance(now));
    bundle = merge_bundle(bundle, "one", rotation.wanted(), now);
    ASSERT_LE(read_authorities(bundle).size(), 2u);
    // What a peer sees now is trusted by the bundle of two minutes ago, too: it only grows there.
    ASSERT_TRUE(trusted(bundle, rotation.shown().chain_pem, "s.n.svc", now));
    const std::string old = bundle;
    if (rotation.published(now)) {
      ++shown;
      ASSERT_TRUE(trusted(old, rotation.shown().chain_pem, "s.n.svc", now));
    }
  }
  EXPECT_NE(rotation.shown().authority_pem, first);
  EXPECT_EQ(shown, 9) << "once a day, from the second";
}

TEST(Rotation, WithoutTheApiServerItGoesOnWithWhatItHas) {
  Rotation rotation({"s.n.svc"}, "one");
  ASSERT_EQ(rotation.advance(kNow), true);
  const std::string shown = rotation.shown().authority_pem;
  for (WallTime now = kNow; now < kNow + kLifetime; now += hours(1)) {
    ASSERT_EQ(rotation.advance(now), false);
  }
  EXPECT_EQ(rotation.shown().authority_pem, shown) << "the next one is not in the bundle";
  EXPECT_EQ(rotation.wanted().size(), 2u);
  for (WallTime now = kNow + kLifetime; now < kNow + 4 * kLifetime; now += hours(1)) {
    ASSERT_TRUE(rotation.advance(now));
    ASSERT_GT(rotation.shown().not_after, now) << "never one that has ended";
    for (const std::string& pem : rotation.wanted()) {
      ASSERT_GT(read_authorities(pem)[0].not_after, now);
    }
  }
}

}  // namespace
}  // namespace dsj::op

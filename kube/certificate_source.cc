#include "kube/certificate_source.h"

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

#include "common/files/posix_files.h"

namespace dsj::kube {
namespace {

constexpr auto kLookEvery = std::chrono::seconds(10);
constexpr size_t kPemBytesMax = 4 << 20;

/// The content; empty if there is no file, or it cannot be read now.
std::string read(const std::string& path) {
  if (path.empty()) return {};
  PosixFiles files;
  auto text = files.read_all(path, kPemBytesMax);
  return text ? std::move(*text) : std::string();
}

}  // namespace

bool fit_together(const std::string& certificate_pem, const std::string& key_pem) {
  auto memory = [](const std::string& pem) {
    return std::unique_ptr<BIO, int (*)(BIO*)>(
        BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  };
  const auto certificate_text = memory(certificate_pem), key_text = memory(key_pem);
  const std::unique_ptr<X509, void (*)(X509*)> certificate(
      PEM_read_bio_X509(certificate_text.get(), nullptr, nullptr, nullptr), X509_free);
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(
      PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
  return certificate && key && X509_check_private_key(certificate.get(), key.get()) == 1;
}

CertificateSource::CertificateSource(const Access& access)
    : ca_file_(access.ca_file),
      certificate_file_(access.client_certificate_file),
      key_file_(access.client_key_file),
      current_(std::make_shared<Certificates>(access.ca_pem, access.client_certificate_pem,
                                              access.client_key_pem)),
      looked_at_(Clock::now()) {}

std::shared_ptr<const Certificates> CertificateSource::current(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (now - looked_at_ >= kLookEvery) {
    looked_at_ = now;
    if (auto next = read_again()) current_ = std::move(next);
  }
  return current_;
}

std::shared_ptr<const Certificates> CertificateSource::read_again() const {
  auto next = std::make_shared<Certificates>(*current_);
  ++next->generation;
  bool changed = false;
  if (std::string ca = read(ca_file_); !ca.empty() && ca != current_->ca_pem) {
    next->ca_pem = std::move(ca);
    changed = true;
  }
  if (!certificate_file_.empty()) next->client_certificate_pem = read(certificate_file_);
  if (!key_file_.empty()) next->client_key_pem = read(key_file_);
  const bool other = next->client_certificate_pem != current_->client_certificate_pem ||
                     next->client_key_pem != current_->client_key_pem;
  if (other && fit_together(next->client_certificate_pem, next->client_key_pem)) return next;
  next->client_certificate_pem = current_->client_certificate_pem;
  next->client_key_pem = current_->client_key_pem;
  return changed ? next : nullptr;
}

void CertificateSource::replace_client(const std::string& certificate_pem,
                                       const std::string& key_pem) {
  const std::lock_guard lock(mutex_);
  if (current_->client_certificate_pem == certificate_pem && current_->client_key_pem == key_pem)
    return;
  auto next = std::make_shared<Certificates>(*current_);
  ++next->generation;
  next->client_certificate_pem = certificate_pem;
  next->client_key_pem = key_pem;
  current_ = std::move(next);
}

void CertificateSource::refused() {
  const std::lock_guard lock(mutex_);
  looked_at_ = {};
}

}  // namespace dsj::kube

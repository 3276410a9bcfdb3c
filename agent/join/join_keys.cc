#include "agent/join/join_keys.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <boost/asio/ssl/context.hpp>

#include "common/files/posix_files.h"
#include "common/log.h"
#include "common/net_address.h"
#include "job/join_keys.h"

namespace dsj::agent {
namespace {

namespace ssl = boost::asio::ssl;

constexpr std::chrono::seconds kReadAgain{30};
constexpr size_t kFileMax = 64 * 1024;

using Certificate = std::shared_ptr<X509>;

/// All certificates in a PEM text.
std::vector<Certificate> certificates_in(const std::string& pem) {
  std::vector<Certificate> all;
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> bio(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free_all);
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    all.emplace_back(one, X509_free);
  }
  ERR_clear_error();  // "no start line" at the end
  return all;
}

WallTime time_of(const ASN1_TIME* time) {
  tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return {};
  return std::chrono::system_clock::from_time_t(timegm(&parts));
}

std::string text_of(const std::string& path) {
  PosixFiles files;
  return files.read_all(path, kFileMax).value_or("");
}

}  // namespace

std::optional<size_t> key_in_use(const std::vector<MountedKey>& keys, WallTime now) {
  std::optional<size_t> chosen;
  // Preferred: not expired, then known everywhere, then the newest of the known or the oldest of
  // the others.
  const auto better = [&](const MountedKey& a, const MountedKey& b) {
    const bool a_lives = now < a.ends, b_lives = now < b.ends;
    if (a_lives != b_lives) return a_lives;
    const bool a_known = now - a.made >= kKeySpread, b_known = now - b.made >= kKeySpread;
    if (a_known != b_known) return a_known;
    return a_known ? a.made > b.made : a.made < b.made;
  };
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!chosen || better(keys[i], keys[*chosen])) chosen = i;
  }
  return chosen;
}

Result<std::string> JoinKeys::authorities() const {
  std::string all;
  for (int slot = 0; slot < kKeySlots; ++slot) all += text_of(folder_ + "/" + authority_file(slot));
  if (!all.empty()) return all;
  return fail(ErrorKind::Environment, "no authority of worker 0's agent is mounted", folder_,
              "the operator mounts them: is the ConfigMap that the pod names there, and filled?");
}

/// The keys whose certificate their slot's authority has signed. A Secret may be mounted before its
/// authority.
std::vector<MountedKey> JoinKeys::keys() const {
  std::vector<MountedKey> keys;
  for (int slot = 0; slot < kKeySlots; ++slot) {
    MountedKey key{.chain_pem = text_of(folder_ + "/" + chain_file(slot)),
                   .key_pem = text_of(folder_ + "/" + key_file(slot))};
    const auto chain = certificates_in(key.chain_pem);
    const auto authority = certificates_in(text_of(folder_ + "/" + authority_file(slot)));
    if (chain.empty() || authority.empty() || key.key_pem.empty()) continue;
    if (X509_verify(chain[0].get(), X509_get0_pubkey(authority[0].get())) != 1) {
      ERR_clear_error();
      continue;
    }
    key.made = time_of(X509_get0_notBefore(chain[0].get()));
    key.ends = time_of(X509_get0_notAfter(chain[0].get()));
    keys.push_back(std::move(key));
  }
  return keys;
}

void JoinKeys::tell(const std::string& problem) {
  if (problem != told_) log::error(problem);
  told_ = problem;
}

std::shared_ptr<ssl::context> JoinKeys::server() {
  const std::lock_guard lock(mutex_);
  const WallTime now = wall_();
  if (context_ && read_at_ && now >= *read_at_ && now - *read_at_ < kReadAgain) return context_;
  read_at_ = now;
  const auto all = keys();
  const auto chosen = key_in_use(all, now);
  if (!chosen) {
    tell("no key of worker 0's agent is mounted in " + folder_ +
         (context_ ? "; the one before stays in use" : "; no rank can join before there is one"));
    return context_;
  }
  if (all[*chosen].key_pem == shown_) return context_;
  auto made = server_tls(all[*chosen].chain_pem, all[*chosen].key_pem);
  if (!made) {
    tell(made.error().to_string());
    return context_;
  }
  context_ = std::move(*made);
  shown_ = all[*chosen].key_pem;
  told_.clear();
  return context_;
}

Result<std::shared_ptr<ServerProof>> ServerProof::make(const std::string& authorities_pem,
                                                       const std::string& host) {
  auto proof = std::make_shared<ServerProof>();
  proof->host_ = host;
  proof->trusted_.reset(X509_STORE_new(), X509_STORE_free);
  const auto authorities = certificates_in(authorities_pem);
  if (authorities.empty()) {
    return fail(ErrorKind::Environment, "no certificate in the mounted authorities");
  }
  for (const auto& authority : authorities) {
    X509_STORE_add_cert(proof->trusted_.get(), authority.get());
  }
  return proof;
}

void ServerProof::demand(ssl::context& context) {
  SSL_CTX_set1_cert_store(context.native_handle(), trusted_.get());
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_3_VERSION);
  SSL_CTX_set_cert_verify_callback(context.native_handle(), check, this);
}

int ServerProof::check(X509_STORE_CTX* seen, void* self) {
  auto& own = *static_cast<ServerProof*>(self);
  // Verifies the name that the operator uses. The name in the connection may have the cluster's
  // domain appended.
  X509_STORE_CTX_set_verify_cb(seen, [](int good, X509_STORE_CTX*) { return good; });
  X509_VERIFY_PARAM* wanted = X509_STORE_CTX_get0_param(seen);
  if (is_ip_address(own.host_)) {
    X509_VERIFY_PARAM_set1_ip_asc(wanted, own.host_.c_str());
  } else {
    X509_VERIFY_PARAM_set1_host(wanted, own.host_.data(), own.host_.size());
  }
  const bool good = X509_verify_cert(seen) == 1;
  const std::lock_guard lock(own.mutex_);
  own.problem_ = good ? "" : X509_verify_cert_error_string(X509_STORE_CTX_get_error(seen));
  return good ? 1 : 0;
}

std::string ServerProof::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

}  // namespace dsj::agent

#include "agent/join/join_keys.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <boost/asio/ssl/context.hpp>

#include "common/files/posix_files.h"
#include "common/log.h"
#include "common/net_address.h"
#include "job/join_keys.h"

namespace dsj::agent {
namespace {

namespace ssl = boost::asio::ssl;

constexpr size_t kFileMax = 64 * 1024;

/// The first certificate in a PEM text; null if there is none.
std::shared_ptr<X509> certificate_in(const std::string& pem) {
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> bio(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free_all);
  std::shared_ptr<X509> one(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), X509_free);
  ERR_clear_error();
  return one;
}

}  // namespace

Result<std::shared_ptr<ssl::context>> JoinKey::read() const {
  PosixFiles files;
  DSJ_TRY(const std::string chain_pem, files.read_all(folder_ + "/" + kJoinChainFile, kFileMax));
  DSJ_TRY(const std::string key_pem, files.read_all(folder_ + "/" + kJoinKeyFile, kFileMax));
  const auto own = certificate_in(chain_pem), authority = certificate_in(authority_pem_);
  if (!own || !authority || X509_verify(own.get(), X509_get0_pubkey(authority.get())) != 1) {
    ERR_clear_error();
    return fail(ErrorKind::Environment, "the authority of this run has not signed it", folder_);
  }
  return server_tls(chain_pem, key_pem);
}

std::shared_ptr<ssl::context> JoinKey::server() {
  const std::lock_guard lock(mutex_);
  if (context_) return context_;
  auto made = read();
  if (made) return context_ = std::move(*made);
  const std::string problem = made.error().to_string();
  if (problem != told_)
    log::error("no key of worker 0's agent, so no rank can join before there is one: " + problem);
  told_ = problem;
  return nullptr;
}

Result<std::shared_ptr<ServerProof>> ServerProof::make(const std::string& authority_pem,
                                                       const std::string& host) {
  auto proof = std::make_shared<ServerProof>();
  proof->host_ = host;
  proof->trusted_.reset(X509_STORE_new(), X509_STORE_free);
  const auto authority = certificate_in(authority_pem);
  if (!authority) {
    return fail(ErrorKind::Environment, "no certificate in the authority of worker 0's key");
  }
  X509_STORE_add_cert(proof->trusted_.get(), authority.get());
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

// How worker 0's agent authenticates itself: the key that the operator mounts (job/join_keys.h),
// and what a worker requires of the server before it sends its token.
#pragma once

#include <openssl/x509.h>

#include <memory>
#include <mutex>
#include <string>

#include "common/http/http_listener.h"
#include "common/result.h"

namespace dsj::agent {

/// Worker 0's key.
class JoinKey {
 public:
  JoinKey(std::string folder, std::string authority_pem)
      : folder_(std::move(folder)), authority_pem_(std::move(authority_pem)) {}

  /// The TLS context of a connection. Null if no key is mounted that the authority has signed; that
  /// is logged once. A key is read once, because its Secret is immutable. Thread-safe.
  std::shared_ptr<boost::asio::ssl::context> server();

 private:
  Result<std::shared_ptr<boost::asio::ssl::context>> read() const;

  const std::string folder_, authority_pem_;
  std::mutex mutex_;
  std::shared_ptr<boost::asio::ssl::context> context_;
  std::string told_;  ///< the last problem
};

/// What a client requires of a server: a certificate for `host` from the authority. Authorities in
/// the image are not trusted.
class ServerProof {
 public:
  /// Environment: `authority_pem` contains no readable certificate.
  static Result<std::shared_ptr<ServerProof>> make(const std::string& authority_pem,
                                                   const std::string& host);
  /// Sets up a connection's context. This object must outlive the connection.
  void demand(boost::asio::ssl::context& context);
  /// Why the last certificate was refused; empty if it was not. Thread-safe.
  std::string problem() const;

 private:
  static int check(X509_STORE_CTX* seen, void* self);
  std::shared_ptr<X509_STORE> trusted_;
  std::string host_;
  mutable std::mutex mutex_;
  std::string problem_;
};

}  // namespace dsj::agent

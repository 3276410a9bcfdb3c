// How worker 0's agent authenticates itself: the keys that the operator mounts (job/join_keys.h),
// and what a worker requires of the server before it sends its token.
#pragma once

#include <openssl/x509.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/http/http_listener.h"
#include "common/result.h"

namespace dsj::agent {

using WallTime = std::chrono::system_clock::time_point;

struct MountedKey {
  WallTime made, ends;
  std::string chain_pem, key_pem;
};

/// The index of the key that worker 0 uses: the newest that all pods know by now (kKeySpread), or
/// else the oldest. An expired key is used only if there is no other. nullopt if there is none.
std::optional<size_t> key_in_use(const std::vector<MountedKey>& keys, WallTime now);

/// A pod's mounted keys. They are read again from time to time, because they are renewed while the
/// pod runs.
class JoinKeys {
 public:
  using Wall = std::function<WallTime()>;
  explicit JoinKeys(std::string folder, Wall wall = std::chrono::system_clock::now)
      : folder_(std::move(folder)), wall_(std::move(wall)) {}

  /// The authorities of worker 0's certificates, as PEM. Environment: none is mounted.
  Result<std::string> authorities() const;
  /// For worker 0: the TLS context of the next connection. Null if no key is mounted that its
  /// authority has signed; that is logged once. Thread-safe.
  std::shared_ptr<boost::asio::ssl::context> server();

 private:
  std::vector<MountedKey> keys() const;
  void tell(const std::string& problem);

  const std::string folder_;
  const Wall wall_;
  std::mutex mutex_;
  std::shared_ptr<boost::asio::ssl::context> context_;
  std::string shown_;  ///< the private key of `context_`
  std::string told_;
  std::optional<WallTime> read_at_;
};

/// What a client requires of a server: a certificate for `host` from one of the authorities.
/// Authorities in the image are not trusted.
class ServerProof {
 public:
  /// Environment: `authorities_pem` contains no readable authority.
  static Result<std::shared_ptr<ServerProof>> make(const std::string& authorities_pem,
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

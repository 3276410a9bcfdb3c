// How worker 0's agent proves itself: the keys that the operator mounts (job/join_keys.h), and what a
// worker demands of the server that it is about to show its token.
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

/// Which key worker 0 shows: the newest that all pods know by now (kKeySpread), else the oldest. An
/// expired one only if there is no other. nullopt: there is none.
std::optional<size_t> key_in_use(const std::vector<MountedKey>& keys, WallTime now);

/// A pod's mounted keys. They are read again while the pod lives, because they are renewed.
class JoinKeys {
 public:
  using Wall = std::function<WallTime()>;
  explicit JoinKeys(std::string folder, Wall wall = std::chrono::system_clock::now)
      : folder_(std::move(folder)), wall_(std::move(wall)) {}

  /// The authorities that vouch for worker 0, as PEM. Environment: none is mounted.
  Result<std::string> authorities() const;
  /// Worker 0 only: for the next connection. Null: no key is mounted, or none that the authorities
  /// vouch for; the log tells once. Thread-safe.
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

/// What a client asks of one server: a certificate for `host` by one of the authorities. Nothing else
/// is trusted, whatever the image has.
class ServerProof {
 public:
  /// Environment: no authority can be read in `authorities_pem`.
  static Result<std::shared_ptr<ServerProof>> make(const std::string& authorities_pem,
                                                   const std::string& host);
  /// For a connection's context. This must outlive the connection.
  void demand(boost::asio::ssl::context& context);
  /// Why the last certificate was refused; empty: none was. Thread-safe.
  std::string problem() const;

 private:
  static int check(X509_STORE_CTX* seen, void* self);
  std::shared_ptr<X509_STORE> trusted_;
  std::string host_;
  mutable std::mutex mutex_;
  std::string problem_;
};

}  // namespace dsj::agent

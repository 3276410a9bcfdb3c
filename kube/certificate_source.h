// The certificates of a connection. Those that Access names by file are read again when the files
// change, looked at every ten seconds at most and at once after the server said 401; a pair that
// does not fit together yet (one of two files written) is not taken. Thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "kube/access.h"

namespace dsj::kube {

struct Certificates {
  std::string ca_pem;  ///< empty: the system's authorities
  std::string client_certificate_pem, client_key_pem;
  int64_t generation = 0;  ///< moves with every change: connections made before have others
};

class CertificateSource {
 public:
  using Clock = std::chrono::steady_clock;
  explicit CertificateSource(const Access& access);

  std::shared_ptr<const Certificates> current(Clock::time_point now = Clock::now());
  /// The server did not accept the certificate: look at the files at the next request.
  void refused();

 private:
  /// The next certificates; null when nothing has changed.
  std::shared_ptr<const Certificates> read_again() const;

  std::mutex mutex_;
  const std::string ca_file_, certificate_file_, key_file_;
  std::shared_ptr<const Certificates> current_;
  Clock::time_point looked_at_{};
};

/// Whether OpenSSL reads both and the key is the certificate's.
bool fit_together(const std::string& certificate_pem, const std::string& key_pem);

}  // namespace dsj::kube

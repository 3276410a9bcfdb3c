// A connection's certificates. Those that Access names by file are reread when the files change. It
// checks at most every ten seconds, and at once after a 401. A pair that does not match (only one
// of two files is written) is not used. Thread-safe.
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
  int64_t generation = 0;  ///< rises with every change; older connections used others
};

class CertificateSource {
 public:
  using Clock = std::chrono::steady_clock;
  explicit CertificateSource(const Access& access);

  std::shared_ptr<const Certificates> current(Clock::time_point now = Clock::now());
  /// Replaces the client certificate, from a credential plugin. The pair must match.
  void replace_client(const std::string& certificate_pem, const std::string& key_pem);
  /// The server refused the certificate: checks the files at the next request.
  void refused();

 private:
  /// The new certificates; null if nothing has changed.
  std::shared_ptr<const Certificates> read_again() const;

  std::mutex mutex_;
  const std::string ca_file_, certificate_file_, key_file_;
  std::shared_ptr<const Certificates> current_;
  Clock::time_point looked_at_{};
};

/// Whether OpenSSL reads both and the key matches the certificate.
bool fit_together(const std::string& certificate_pem, const std::string& key_pem);

}  // namespace dsj::kube

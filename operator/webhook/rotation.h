// When the webhook's certificate is renewed, which one is in use, and what the bundle of
// authorities should hold. It only decides, from what was seen and the time; webhook.h acts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/webhook/certificate.h"

namespace dsj::op {

/// Long enough that fresh certificates cost one write a day: admission must not depend on more.
inline constexpr std::chrono::hours kLifetime{48};
inline constexpr std::chrono::hours kRenewBefore{24};  ///< before the end of the certificate in use
/// How long after the bundle has the next authority its certificate is used: other API servers
/// learn of the bundle by their watches.
inline constexpr std::chrono::minutes kSpread{2};
/// The most authorities of ours in a bundle; beyond it those that end first are dropped. Pods that
/// are replaced in a loop must not fill the object.
inline constexpr size_t kAuthoritiesMax = 64;

/// What a bundle should be: its valid authorities in their order, then those of `own` that it
/// lacks. It drops what cannot be read, what has expired, and what this identity had before.
/// Merging again changes nothing, so replicas do not write forever.
std::string merge_bundle(const std::string& seen, const std::string& identity,
                         const std::vector<std::string>& own, WallTime now);

class Rotation {
 public:
  Rotation(std::vector<std::string> names, std::string identity);

  /// Makes the first certificate, or the next one when it is due. True: the certificate in use has
  /// changed. Internal: OpenSSL fails.
  Result<bool> advance(WallTime now);
  /// The authorities that must be in the bundle. Call after advance().
  std::vector<std::string> wanted() const;
  /// The bundle has all of wanted(), as read or written at `now`. True: the certificate in use has
  /// changed.
  bool published(WallTime now);
  /// The certificate in use. Call after the first advance().
  const ServerCertificate& shown() const { return *shown_; }

 private:
  const std::vector<std::string> names_;
  const std::string identity_;
  std::optional<ServerCertificate> shown_, next_;
  std::optional<WallTime> next_published_;
};

}  // namespace dsj::op

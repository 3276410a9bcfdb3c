// Decides when the webhook's certificate is renewed, which one is in use, and what the bundle of
// authorities should contain. Pure: it uses what was read and the time; webhook.h acts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/webhook/certificate.h"

namespace dsj::op {

/// Long enough for one write a day, because admission must not depend on more.
inline constexpr std::chrono::hours kLifetime{48};
inline constexpr std::chrono::hours kRenewBefore{24};  ///< before the certificate in use expires
/// How long after the next authority entered the bundle its certificate is used: other API servers
/// learn of the bundle through watches.
inline constexpr std::chrono::minutes kSpread{2};
/// The most authorities of ours in a bundle; those that expire first are dropped. Pods that are
/// replaced in a loop must not fill the object.
inline constexpr size_t kAuthoritiesMax = 64;

/// The bundle as it should be: its valid authorities in their order, then the missing ones of
/// `own`. Unreadable and expired authorities, and former ones of this identity, are dropped. A
/// second merge changes nothing, so replicas do not write forever.
std::string merge_bundle(const std::string& seen, const std::string& identity,
                         const std::vector<std::string>& own, WallTime now);

class Rotation {
 public:
  Rotation(std::vector<std::string> names, std::string identity);

  /// Makes the first certificate, or the next one when it is due. Returns true if the certificate
  /// in use changed. Internal: OpenSSL fails.
  Result<bool> advance(WallTime now);
  /// The authorities that must be in the bundle. Call after advance().
  std::vector<std::string> wanted() const;
  /// Call when the bundle contains all of wanted(), as read or written at `now`. Returns true if
  /// the certificate in use changed.
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

// When the webhook's certificate is made anew, which one is shown, and what the bundle of
// authorities should hold. Decisions only, of what was seen and the time (webhook.h acts).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/webhook/certificate.h"

namespace dsj::op {

/// The least writes that keep a certificate fresh: a job's admission must not depend on more than
/// one write a day.
inline constexpr std::chrono::hours kLifetime{48};
inline constexpr std::chrono::hours kRenewBefore{24};  ///< before the end of the one that is shown
/// From a bundle that has the next authority until its certificate is shown: other API servers
/// hear of it by their watches.
inline constexpr std::chrono::minutes kSpread{2};
/// More of ours than this in a bundle: those that end first go. Pods that are replaced in a loop
/// must not fill the object.
inline constexpr size_t kAuthoritiesMax = 64;

/// What a bundle should be: what is in it and lives, in its order, then those of `own` that are not
/// there yet. Dropped are what cannot be read, what has ended, and what this identity had before.
/// Merging again changes nothing, so that replicas do not write for ever.
std::string merge_bundle(const std::string& seen, const std::string& identity,
                         const std::vector<std::string>& own, WallTime now);

class Rotation {
 public:
  Rotation(std::vector<std::string> names, std::string identity);

  /// Makes what is due: the first certificate, or the next one. true: another one is to be shown.
  /// Internal: OpenSSL fails.
  Result<bool> advance(WallTime now);
  /// The authorities that must be in the bundle; after advance().
  std::vector<std::string> wanted() const;
  /// The bundle has all of wanted(), read or written at `now`. true: another certificate is to be
  /// shown.
  bool published(WallTime now);
  /// After the first advance().
  const ServerCertificate& shown() const { return *shown_; }

 private:
  const std::vector<std::string> names_;
  const std::string identity_;
  std::optional<ServerCertificate> shown_, next_;
  std::optional<WallTime> next_published_;
};

}  // namespace dsj::op

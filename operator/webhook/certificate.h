// Authorities and server certificates of the webhook, EC P-256, in memory only.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::op {

using WallTime = std::chrono::system_clock::time_point;

/// The organization in the subject of our authorities: what tells them from others' in a bundle.
inline constexpr char kAuthorityOrganization[] = "dsj-operator webhook";

/// A server's certificate with the authority that signed it. The authority's key signed this one
/// certificate and is gone.
struct ServerCertificate {
  std::string authority_pem;
  std::string chain_pem;  ///< the server's certificate
  std::string key_pem;    ///< of the server's certificate
  WallTime not_after;
};

/// The authorities' common name: the identity's last 64 characters (X.520 allows no more).
std::string common_name_of(const std::string& identity);

/// For these names (DNS names or IP addresses), valid from an hour before `now`, because clocks
/// differ, to `now` + `lifetime`. `identity`: of this process.
Result<ServerCertificate> issue_certificate(const std::vector<std::string>& names,
                                            const std::string& identity, WallTime now,
                                            std::chrono::seconds lifetime);

/// One authority of a bundle.
struct Authority {
  std::string pem;
  bool ours = false;     ///< by its organization
  std::string identity;  ///< common name; of ours only
  WallTime not_after;
};

/// What can be read of PEM text, in its order; anything else in it is left out.
std::vector<Authority> read_authorities(const std::string& pem);

}  // namespace dsj::op

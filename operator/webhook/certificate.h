// Issues certificate authorities and server certificates (EC P-256). The webhook's stay in memory;
// those of jobs are for their worker 0 (operator/render/keys.h).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::op {

using WallTime = std::chrono::system_clock::time_point;

/// The organization in the subject of our webhook authorities, by which they are recognized in a
/// bundle.
inline constexpr char kAuthorityOrganization[] = "dsj-operator webhook";
/// The organization of the authorities of jobs.
inline constexpr char kJobOrganization[] = "dsj-operator job";

/// A server certificate and the authority that signed it. The authority's key signed only this
/// certificate and was discarded.
struct ServerCertificate {
  std::string authority_pem;
  std::string chain_pem;  ///< the server's certificate
  std::string key_pem;    ///< of the server's certificate
  WallTime not_after;
};

/// The common name of our authorities: the last 64 characters of the identity (X.520's limit).
std::string common_name_of(const std::string& identity);

/// Issues a certificate for `names` (DNS names or IP addresses). It is valid from one hour before
/// `now`, because clocks differ, to `now` + `lifetime`. `identity` names this process or the job.
/// Internal: OpenSSL fails.
Result<ServerCertificate> issue_certificate(const std::vector<std::string>& names,
                                            const std::string& identity, WallTime now,
                                            std::chrono::seconds lifetime,
                                            const char* organization = kAuthorityOrganization);

/// One authority of a bundle.
struct Authority {
  std::string pem;
  bool ours = false;     ///< recognized by its organization
  std::string identity;  ///< common name; set only if `ours`
  WallTime not_after;
};

/// The authorities in a PEM text, in its order. Unreadable blocks are skipped.
std::vector<Authority> read_authorities(const std::string& pem);

}  // namespace dsj::op

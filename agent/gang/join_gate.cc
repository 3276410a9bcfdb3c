#include "agent/gang/join_gate.h"

#include "job/worker_job.h"

namespace dsj::agent {
namespace {

constexpr std::string_view kBearer = "Bearer ";
/// How many verified tokens are kept, so that a signature is checked once, not at every beat: of each worker
/// the one before a renewal and the one after, and some of strangers. Beyond that all are forgotten, so
/// strangers with many tokens make each worker's count once more per so many of their own.
size_t most_verified(int workers) {
  return 2 * static_cast<size_t>(workers) + 32;
}

}  // namespace

bool same_key(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ (b.empty() ? 0 : b[i % b.size()]));
  }
  return difference == 0;
}

std::expected<Caller, Denied> KeyGate::admit(std::string_view authorization) {
  if (!same_key(authorization, expected_)) return std::unexpected(Denied{401, "another key"});
  return Caller{};
}

TokenGate::TokenGate(std::string job, TokenRules rules, KeyRing& keys, WallSeconds wall,
                     int workers)
    : job_(std::move(job)),
      rules_(std::move(rules)),
      keys_(keys),
      wall_(std::move(wall)),
      verified_most_(most_verified(workers)) {}

std::expected<TokenClaims, Denied> TokenGate::verified(std::string_view text) {
  const auto known = verified_.find(text);
  if (known != verified_.end() && keys_.find(known->second.key_id).keys == known->second.by) {
    return known->second.claims;
  }
  const auto token = parse_token(text);
  if (!token) return std::unexpected(Denied{401, token.error().to_string()});
  const KeyRing::Found found = keys_.find(token->key_id);
  if (found.lookup == FetchGate::Lookup::Pending) {
    return std::unexpected(Denied{503, "the cluster's token keys are being fetched"});
  }
  ++checked_;
  if (const auto good = found.keys->verify_signature(*token); !good) {
    return std::unexpected(Denied{401, good.error().to_string()});
  }
  if (verified_.size() >= verified_most_) verified_.clear();
  verified_.insert_or_assign(std::string(text), Verified{token->key_id, token->claims, found.keys});
  return token->claims;
}

std::expected<Caller, Denied> TokenGate::admit(std::string_view authorization) {
  if (!authorization.starts_with(kBearer)) return std::unexpected(Denied{401, "no bearer token"});
  const std::lock_guard lock(mutex_);
  const auto claims = verified(authorization.substr(kBearer.size()));
  if (!claims) return std::unexpected(claims.error());
  // Checked at every beat, because time passes. 401 is only for what nobody signed; a caller that
  // is known but not meant gets 403.
  if (const auto good = check_claims(*claims, rules_, wall_()); !good) {
    return std::unexpected(Denied{403, good.error().to_string()});
  }
  return Caller{claims->pod_name, claims->pod_uid};
}

std::expected<void, Denied> TokenGate::permit(const Caller& caller, const WorkerReport& report) {
  const std::string own = worker_pod_name(job_, report.worker, report.incarnation);
  if (caller.pod != own) {
    return std::unexpected(
        Denied{403, "the token is of pod \"" + caller.pod + "\", the message of \"" + own + "\""});
  }
  const std::lock_guard lock(mutex_);
  const auto [pin, first] = pins_.try_emplace(report.worker, report.incarnation, caller.pod_uid);
  if (!first && report.incarnation > pin->second.incarnation) {
    pin->second = {report.incarnation, caller.pod_uid};
  }
  if (pin->second.incarnation == report.incarnation && pin->second.uid != caller.pod_uid) {
    return std::unexpected(Denied{403, "another pod joined under this name before"});
  }
  return {};
}

}  // namespace dsj::agent

#include "agent/join/join_gate.h"

#include <chrono>

#include "common/log.h"
#include "job/worker_job.h"

namespace dsj::agent {
namespace {

FetchGate::Time steady_now() {
  return std::chrono::duration_cast<FetchGate::Time>(
      std::chrono::steady_clock::now().time_since_epoch());
}

constexpr std::string_view kBearer = "Bearer ";
/// How many verified tokens are cached, so that each signature is checked once and not at every
/// beat: two per worker, before and after a renewal, plus some for strangers. When the cache is
/// full it is cleared, so strangers with many tokens only cause an extra check per worker now and
/// then.
size_t most_verified(int workers) {
  return 2 * static_cast<size_t>(workers) + 32;
}

}  // namespace

FetchGate::Lookup FetchGate::look(bool known, Time now) {
  if (known) {
    if (good_at_ && now - *good_at_ >= max_age_) wanted_ = true;
    return Lookup::Known;
  }
  // A caller whose key the cluster does not have costs at most one fetch per interval.
  const bool fresh = good_at_ && now - *good_at_ < interval_;
  if (fresh && !running_) return Lookup::Unknown;
  wanted_ = true;
  return Lookup::Pending;
}

bool FetchGate::begin(Time now) {
  if (!wanted_ || running_ || (begun_at_ && now - *begun_at_ < interval_)) return false;
  wanted_ = false;
  running_ = true;
  begun_at_ = now;
  return true;
}

void FetchGate::ended(bool good, Time now) {
  running_ = false;
  if (good) good_at_ = now;
}

KeyRing::KeyRing(TokenKeys first, Fetch fetch, Options options)
    : keys_(std::make_shared<const TokenKeys>(std::move(first))),
      fetch_(std::move(fetch)),
      gate_(options.interval, options.max_age),
      thread_([this] { run(); }) {}

KeyRing::~KeyRing() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

KeyRing::Found KeyRing::find(const std::string& key_id) {
  const std::lock_guard lock(mutex_);
  const Found found{gate_.look(keys_->has(key_id), steady_now()), keys_};
  wake_.notify_all();
  return found;
}

int64_t KeyRing::fetches() const {
  const std::lock_guard lock(mutex_);
  return fetches_;
}

void KeyRing::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!gate_.begin(steady_now())) {
      wake_.wait_for(lock, std::chrono::milliseconds(100));
      continue;
    }
    ++fetches_;
    lock.unlock();
    const auto text = fetch_();
    auto keys = text ? TokenKeys::from_jwks(*text, "the cluster's token keys")
                     : Result<TokenKeys>(std::unexpected(text.error()));
    if (!keys) log::warn("token keys: " + keys.error().to_string());
    lock.lock();
    if (keys) keys_ = std::make_shared<const TokenKeys>(std::move(*keys));
    gate_.ended(keys.has_value(), steady_now());
  }
}

bool same_key(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ (b.empty() ? 0 : b[i % b.size()]));
  }
  return difference == 0;
}

std::expected<Caller, Denied> KeyGate::admit(std::string_view authorization) {
  if (!same_key(authorization, expected_)) return std::unexpected(Denied{401, "wrong key"});
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
  // Checked at every beat, because tokens expire. 401 is only for tokens without a valid signature;
  // a caller with a valid token for something else gets 403.
  if (const auto good = check_claims(*claims, rules_, wall_()); !good) {
    return std::unexpected(Denied{403, good.error().to_string()});
  }
  return Caller{claims->pod_name, claims->pod_uid};
}

std::expected<void, Denied> TokenGate::permit(const Caller& caller, int worker,
                                              int64_t incarnation) {
  const std::string own = worker_pod_name(job_, worker, incarnation);
  if (caller.pod != own) {
    return std::unexpected(Denied{
        403, "the token belongs to pod \"" + caller.pod + "\", the message to \"" + own + "\""});
  }
  const std::lock_guard lock(mutex_);
  const auto [pin, first] = pins_.try_emplace(worker, incarnation, caller.pod_uid);
  if (!first && incarnation > pin->second.incarnation) {
    pin->second = {incarnation, caller.pod_uid};
  }
  if (pin->second.incarnation == incarnation && pin->second.uid != caller.pod_uid) {
    return std::unexpected(Denied{403, "another pod joined under this name before"});
  }
  return {};
}

}  // namespace dsj::agent

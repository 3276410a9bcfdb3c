#include "operator/webhook/rotation.h"

#include <algorithm>

namespace dsj::op {

std::string merge_bundle(const std::string& seen, const std::string& identity,
                         const std::vector<std::string>& own, WallTime now) {
  const std::string name = common_name_of(identity);
  std::vector<Authority> kept;
  auto has = [&](const std::string& pem) {
    return std::ranges::any_of(kept, [&](const Authority& other) { return other.pem == pem; });
  };
  auto is_own = [&](const Authority& authority) {
    return std::ranges::find(own, authority.pem) != own.end();
  };
  for (Authority& authority : read_authorities(seen)) {
    const bool former = authority.ours && authority.identity == name && !is_own(authority);
    if (!former && authority.not_after > now && !has(authority.pem)) {
      kept.push_back(std::move(authority));
    }
  }
  for (;;) {
    auto first = kept.end();
    size_t ours = own.size();
    for (auto at = kept.begin(); at != kept.end(); ++at) {
      if (!at->ours || is_own(*at)) continue;
      ++ours;
      if (first == kept.end() || at->not_after < first->not_after) first = at;
    }
    if (ours <= kAuthoritiesMax || first == kept.end()) break;
    kept.erase(first);
  }
  std::string bundle;
  for (const Authority& authority : kept) bundle += authority.pem;
  for (const std::string& pem : own) {
    if (!has(pem)) bundle += pem;
  }
  return bundle;
}

Rotation::Rotation(std::vector<std::string> names, std::string identity)
    : names_(std::move(names)), identity_(std::move(identity)) {}

Result<bool> Rotation::advance(WallTime now) {
  if (next_ && now >= next_->not_after - kRenewBefore) next_.reset();  // never published
  if (!shown_ || now >= shown_->not_after) {
    if (!next_) {
      DSJ_TRY(next_, issue_certificate(names_, identity_, now, kLifetime));
    }
    shown_ = std::move(next_);
    next_.reset();
    return true;
  }
  if (!next_ && now >= shown_->not_after - kRenewBefore) {
    DSJ_TRY(next_, issue_certificate(names_, identity_, now, kLifetime));
    next_published_.reset();
  }
  return false;
}

std::vector<std::string> Rotation::wanted() const {
  std::vector<std::string> wanted = {shown_->authority_pem};
  if (next_) wanted.push_back(next_->authority_pem);
  return wanted;
}

bool Rotation::published(WallTime now) {
  if (!next_) return false;
  if (!next_published_) next_published_ = now;
  if (now - *next_published_ < kSpread) return false;
  shown_ = std::move(next_);
  next_.reset();
  return true;
}

}  // namespace dsj::op

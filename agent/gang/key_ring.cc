#include "agent/gang/key_ring.h"

#include <chrono>

#include "common/log.h"

namespace dsj::agent {
namespace {

Time steady_now() {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

FetchGate::Lookup FetchGate::look(bool known, Time now) {
  if (known) {
    if (good_at_ && now - *good_at_ >= max_age_) wanted_ = true;
    return Lookup::Known;
  }
  // A caller with a key that the cluster does not have costs one fetch per interval, no more.
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

}  // namespace dsj::agent

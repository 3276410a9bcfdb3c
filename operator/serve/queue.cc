#include "operator/serve/queue.h"

#include <algorithm>

namespace dsj::op {

void Queue::put(const std::string& key, Milliseconds at) {
  if (const auto rest = rests_until_.find(key); rest != rests_until_.end()) {
    at = std::max(at, rest->second);
  }
  if (const auto found = due_.find(key); found != due_.end()) {
    if (found->second <= at) return;
    order_.erase({found->second, key});
    found->second = at;
  } else {
    due_[key] = at;
  }
  if (!working_.contains(key)) order_.insert({at, key});
}

void Queue::add(const std::string& key, Milliseconds at) {
  const std::lock_guard lock(mutex_);
  put(key, at);
  // The key of a large gang is in work while its pods are created.
  if (!working_.contains(key)) changed_.notify_one();
}

std::optional<std::string> Queue::take(Milliseconds now, Milliseconds* waited) {
  const std::lock_guard lock(mutex_);
  if (order_.empty() || order_.begin()->first > now) return std::nullopt;
  const auto [at, key] = *order_.begin();
  if (waited) *waited = now - at;
  order_.erase(order_.begin());
  due_.erase(key);
  working_.insert(key);
  return key;
}

void Queue::finish(const std::string& key, Milliseconds now) {
  const std::lock_guard lock(mutex_);
  failures_.erase(key);
  working_.erase(key);
  if (rest_.count() > 0) {
    std::erase_if(rests_until_, [&](const auto& entry) { return entry.second <= now; });
    rests_until_[key] = now + rest_;
  }
  if (const auto found = due_.find(key); found != due_.end()) {
    const Milliseconds at = found->second;  // added during the pass
    due_.erase(found);
    put(key, at);
  }
  changed_.notify_one();
}

void Queue::retry(const std::string& key, Milliseconds now, Milliseconds least) {
  const std::lock_guard lock(mutex_);
  const int failures = std::min(++failures_[key], 10);
  const Milliseconds pause =
      std::min(Milliseconds(60'000), Milliseconds(100) * (1 << (failures - 1)));
  working_.erase(key);
  // Keys added during the pass also wait, to spare the server.
  due_.erase(key);
  put(key, now + std::max(pause, least));
  changed_.notify_one();
}

std::optional<Milliseconds> Queue::next() const {
  const std::lock_guard lock(mutex_);
  if (order_.empty()) return std::nullopt;
  return order_.begin()->first;
}

size_t Queue::depth() const {
  const std::lock_guard lock(mutex_);
  return order_.size();
}

size_t Queue::failing() const {
  const std::lock_guard lock(mutex_);
  return failures_.size();
}

void Queue::clear() {
  const std::lock_guard lock(mutex_);
  due_.clear();
  order_.clear();
  failures_.clear();
  rests_until_.clear();
}

void Queue::wait(Milliseconds now, Milliseconds most) {
  std::unique_lock lock(mutex_);
  Milliseconds pause = most;
  if (!order_.empty()) pause = std::clamp(order_.begin()->first - now, Milliseconds(0), most);
  if (pause.count() > 0) changed_.wait_for(lock, pause);
}

void Queue::wake() {
  changed_.notify_all();
}

}  // namespace dsj::op

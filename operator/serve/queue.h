// A work queue of job keys: each key is queued once, with a due time and with backoff after
// failures. A key in work is not returned again; what is added meanwhile is queued after it.
// Thread-safe. Time is passed in as monotonic milliseconds.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "operator/observe/times.h"

namespace dsj::op {

class Queue {
 public:
  /// `rest` is the minimum time between the passes of a key, so that a gang's many changes cause
  /// one pass.
  explicit Queue(Milliseconds rest = Milliseconds(0)) : rest_(rest) {}

  /// Makes the key due at `at`, or at an earlier time that is already set.
  void add(const std::string& key, Milliseconds at);
  /// The key that has been due longest, and in `waited` for how long; nullopt if none is due.
  std::optional<std::string> take(Milliseconds now, Milliseconds* waited = nullptr);
  /// The pass succeeded: clears the key's failures. Its rest begins at `now`.
  void finish(const std::string& key, Milliseconds now = Milliseconds(0));
  /// The pass failed: the key is due after a pause of at least `least`, doubled from 100 ms to 60
  /// s.
  void retry(const std::string& key, Milliseconds now, Milliseconds least);
  /// When the next key is due.
  std::optional<Milliseconds> next() const;
  size_t depth() const;
  /// Number of keys whose last pass failed. Each waits up to a minute for its retry.
  size_t failing() const;
  void clear();

  /// Blocks until a key may be due, for at most `most`.
  void wait(Milliseconds now, Milliseconds most);
  void wake();

 private:
  void put(const std::string& key, Milliseconds at);

  const Milliseconds rest_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Milliseconds> due_;
  std::set<std::pair<Milliseconds, std::string>> order_;  ///< due_ by time, without keys in work
  std::set<std::string> working_;
  std::map<std::string, int> failures_;
  std::map<std::string, Milliseconds> rests_until_;
};

}  // namespace dsj::op

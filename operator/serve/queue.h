// Keys that wait for a pass: each once, some later, some slower after failures. A key in work is
// not given out again; what is added meanwhile comes after. Thread-safe. Time is passed in, as
// monotonic milliseconds.
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
  /// `rest`: how long a key rests after its pass, so that a gang's many changes make one pass.
  explicit Queue(Milliseconds rest = Milliseconds(0)) : rest_(rest) {}

  /// Makes the key due at `at`, or keeps an earlier time that it was waiting for.
  void add(const std::string& key, Milliseconds at);
  /// The key that has been due longest; `waited`: for how long. nullopt: none is due.
  std::optional<std::string> take(Milliseconds now, Milliseconds* waited = nullptr);
  /// The pass is over. Its failures are forgotten and its rest begins at `now`.
  void finish(const std::string& key, Milliseconds now = Milliseconds(0));
  /// The pass failed. Due again after a pause that doubles from 100 ms to 60 s, at least `least`.
  void retry(const std::string& key, Milliseconds now, Milliseconds least);
  /// When the next key is due.
  std::optional<Milliseconds> next() const;
  size_t depth() const;
  /// Keys whose last pass failed: each waits for its next try, up to a minute.
  size_t failing() const;
  void clear();

  /// Blocks until something may be due, for at most `most`.
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

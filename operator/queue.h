// Keys waiting for a pass: each once, some later, some slower after failures. A key that is being
// worked on is not handed out a second time; what is added meanwhile comes after. Thread-safe; time
// comes in as monotonic milliseconds.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "operator/times.h"

namespace dsj::op {

class Queue {
 public:
  /// A key that was worked on rests for so long: what a gang's pods tell in that time is one pass.
  explicit Queue(Milliseconds rest = Milliseconds(0)) : rest_(rest) {}

  /// Due at `at`, or earlier when it was already waiting for an earlier time.
  void add(const std::string& key, Milliseconds at);
  /// The key that is due longest; `waited`: for how long.
  std::optional<std::string> take(Milliseconds now, Milliseconds* waited = nullptr);
  /// The pass is over; its failures are forgotten. `now`: its rest begins.
  void finish(const std::string& key, Milliseconds now = Milliseconds(0));
  /// The pass failed: again after a pause that doubles from 100 ms to 60 s, at least `least`.
  void retry(const std::string& key, Milliseconds now, Milliseconds least);
  /// When the next key is due.
  std::optional<Milliseconds> next() const;
  size_t depth() const;
  void clear();

  /// Blocks until something may be due, at most `most`.
  void wait(Milliseconds now, Milliseconds most);
  void wake();

 private:
  void put(const std::string& key, Milliseconds at);

  const Milliseconds rest_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Milliseconds> due_;
  std::set<std::pair<Milliseconds, std::string>> order_;  ///< of due_, without those in work
  std::set<std::string> working_;
  std::map<std::string, int> failures_;
  std::map<std::string, Milliseconds> rests_until_;
};

}  // namespace dsj::op

// Which beats are in order. A beat that another one overtook must not count, but no number may shut out
// the worker either: somebody who stole its token could send a huge one.
#pragma once

#include <map>
#include <optional>

#include "agent/gang/messages.h"

namespace dsj::agent {

/// The furthest that one beat may be ahead of the one before it. Years of beats at any rate stay far
/// below the largest number, so there is always a next one.
inline constexpr int64_t kSequenceStepMax = 1 << 20;

/// Worker 0's side. One thread at a time.
class Sequences {
 public:
  /// nullopt: in order, or a repetition, which changes nothing. Else the newest number that was taken
  /// in this life of the worker (-1: none): its next beat goes on above that.
  std::optional<int64_t> refuse(const WorkerReport& report);

 private:
  struct Newest {
    int64_t incarnation = 0, sequence = -1;
  };
  std::map<int, Newest> newest_;  ///< [worker]
};

}  // namespace dsj::agent

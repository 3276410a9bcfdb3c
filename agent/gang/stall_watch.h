// When a gang that tells no step hangs. Steps are told twice a second at best, and a step may take
// minutes, so silence alone proves little. The time between steps says how long to be patient; then
// every rank is looked at (rank_look.h), and only if none of them moved between two looks is it a
// stall. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/gang/messages.h"

namespace dsj::agent {

/// How long a gang in the middle of a step may be without any movement: five times the longest of
/// the recent gaps between steps, at least half a minute, at most `configured`. Too few gaps, as
/// in a job's first steps: `configured`.
Time stall_limit(const std::vector<Time>& gaps, Time configured);

/// The same for what `looks` show: everything but a step (reading rows, evaluating, saving ...) has
/// `configured`, and so have ranks without a flight log. A process that is stopped does nothing of
/// that, whatever it says.
Time limit_for(const std::vector<RankLook>& looks, const std::vector<Time>& gaps, Time configured);

class StallWatch {
 public:
  /// A step, `gap` after the one before.
  void stepped(Time gap);
  /// Something moved, or another attempt began: what was seen until now is forgotten.
  void forget();
  /// This agent did not run for so long.
  void slept(Time gap);

  /// The newest request has not been judged: judge() wants its answers.
  bool wants_looks() const { return request_ > 0 && request_ != judged_; }
  /// What to do after `quiet` without a sign of life. `looks`: of every rank in order, if it wants
  /// looks and all ranks have been looked at; else empty.
  enum class Verdict { Wait, Moved, Stalled };
  Verdict judge(Time quiet, const std::vector<RankLook>& looks, Time configured, Time now);
  /// Asks for one more look, whatever was seen.
  void ask(Time now);
  /// The request that workers answer (Directive::look); 0: none.
  int64_t request() const { return request_; }

 private:
  std::vector<Time> gaps_;  ///< the newest last
  int64_t newest_ = 0;      ///< number of the last request
  int64_t request_ = 0, judged_ = 0;
  Time asked_at_{0}, first_at_{0};
  std::vector<RankLook> first_;  ///< the first look since something moved
};

}  // namespace dsj::agent

// Decides when a gang that reports no steps hangs, and which ranks cause it, from the looks at all
// ranks (rank_look.h). Pure.
//
// Steps are reported at most twice a second and may take minutes, so silence alone proves little.
// The limit follows from the time between steps. After it every rank is looked at, and the gang
// hangs only if no rank made progress between two looks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agent/diagnose/rank_look.h"

namespace dsj::agent {

/// How long a gang in the middle of a step may make no progress: five times the longest recent gap
/// between steps, at least half a minute, at most `configured`. With too few gaps, as in a job's
/// first steps: `configured`.
Time stall_limit(const std::vector<Time>& gaps, Time configured);

/// The limit for the phases in `looks`: `configured` for everything except a step (reading rows,
/// evaluating, saving ...), and for ranks without a flight log. A stopped process makes no progress
/// in any phase, so it gets the limit of a step.
Time limit_for(const std::vector<RankLook>& looks, const std::vector<Time>& gaps, Time configured);

class StallWatch {
 public:
  /// A step was reported, `gap` after the previous one.
  void stepped(Time gap);
  /// A rank made progress, or another attempt began: drops the looks so far.
  void forget();
  /// This agent did not run for `gap`.
  void slept(Time gap);

  /// The newest request has not been judged yet: judge() needs its answers.
  bool wants_looks() const { return request_ > 0 && request_ != judged_; }
  /// What to do after `quiet` without progress. `looks` has all ranks in order, if wants_looks()
  /// and all have answered; else it is empty.
  enum class Verdict { Wait, Moved, Stalled };
  Verdict judge(Time quiet, const std::vector<RankLook>& looks, Time configured, Time now);
  /// Requests one more look.
  void ask(Time now);
  /// The request that workers answer (Directive::look); 0 if there is none.
  int64_t request() const { return request_; }

 private:
  std::vector<Time> gaps_;  ///< the newest last
  int64_t newest_ = 0;      ///< number of the last request
  int64_t request_ = 0, judged_ = 0;
  Time asked_at_{0}, first_at_{0};
  std::vector<RankLook> first_;  ///< the first look since the last progress
};

struct Stall {
  std::string message;  ///< one sentence: where the ranks are, and who waits for whom
  /// The collective in which the others wait, or that does not end; with its group unless that is
  /// the world. Empty if there is none.
  std::string collective;
  std::vector<int> ranks;  ///< the cause, ascending; empty if no rank stands out
  bool operator==(const Stall&) const = default;
};

/// `ranks` are all ranks of the attempt, in order; none made progress for a while. The first rule
/// that applies decides:
///   - Stopped processes are the cause.
///   - If ranks disagree on what a collective is, the smaller side is the cause, or no rank if both
///     are equal.
///   - If ranks wait for others that wait for no rank (wait_graph.h), those others are the cause.
///     They have not begun a collective of the world or of a group that others have begun, or are in
///     it and make no progress.
///   - If ranks have not begun a collective that others have, those furthest behind are the cause.
///   - If some ranks wait for one another and the rest wait for them, they are the cause: for
///     example the two ends of a connection.
///   - The only rank of an attempt is the cause.
///   - Otherwise no rank: all are in the same collective, or in none.
Stall judge_stall(std::span<const RankLook> ranks);

}  // namespace dsj::agent

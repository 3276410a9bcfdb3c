// When a gang that tells no step hangs, and who hangs, judged by what every rank shows (rank_look.h). Pure.
//
// Steps are told twice a second at best, and a step may take minutes, so silence alone proves little. The time between
// steps says how long to be patient; then every rank is looked at, and only if none of them moved between two looks is
// it a stall.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agent/diagnose/rank_look.h"

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

struct Stall {
  std::string message;  ///< one sentence: who is where, and who waits for whom
  /// In which the others wait, or that does not end; with its group, if that is not the world.
  /// Empty: none.
  std::string collective;
  std::vector<int> ranks;  ///< the culprits, ascending; empty: nobody can be told apart
  bool operator==(const Stall&) const = default;
};

/// `ranks`: of the whole attempt, in order; none of them moved for a while. The first of these that
/// holds decides:
///   - processes are stopped: they are the culprits;
///   - ranks differ in what a collective is: the smaller side, or nobody if both are equal;
///   - ranks wait for others that wait for nobody (wait_graph.h): those others. They have not begun a
///     collective of the world or of a group that others have, or are in it and do not go on;
///   - ranks have not begun a collective that others have: the ones that are furthest behind;
///   - some ranks wait for one another, the others for them: those, which are at the two ends of a
///     connection, for example;
///   - the only rank of the attempt;
///   - otherwise nobody: all are in the same collective, or in none.
Stall judge_stall(std::span<const RankLook> ranks);

}  // namespace dsj::agent

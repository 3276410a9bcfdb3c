// Who hangs, judged by what every rank shows (rank_look.h). Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "agent/gang/rank_look.h"

namespace dsj::agent {

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

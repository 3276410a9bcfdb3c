// Who hangs, judged by what every rank shows (rank_look.h). Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "agent/gang/rank_look.h"

namespace dsj::agent {

struct Stall {
  std::string message;     ///< one sentence: who is where, and who waits for whom
  std::string collective;  ///< in which the others wait, or that does not end; empty: none
  std::vector<int> ranks;  ///< the culprits, ascending; empty: nobody can be told apart
  bool operator==(const Stall&) const = default;
};

/// `ranks`: of the whole attempt, in order; none of them moved for a while. The first of these that
/// holds decides:
///   - processes are stopped: they are the culprits;
///   - ranks differ in what a collective is: the smaller side, or nobody if both are equal;
///   - ranks have not begun a collective that others have: the ones that are furthest behind;
///   - the only rank of the attempt;
///   - otherwise nobody: all are in the same collective, or in none.
Stall judge_stall(std::span<const RankLook> ranks);

/// "rank 2", "ranks 0-2 and 5"; a list of many stretches ends with "and more".
std::string ranks_text(std::span<const int> ranks);
/// "0-2, 5".
std::string ranks_list(std::span<const int> ranks);

}  // namespace dsj::agent

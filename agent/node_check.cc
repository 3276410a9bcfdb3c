#include "agent/node_check.h"

#include <utility>

namespace dsj::agent {

NodeCheck::Result NodeCheck::look() {
  if (action_ == jobspec::NodeHealthAction::Off) return {};
  const auto problems = judge_node(probe_->look(), needs_);
  // Later this container itself uses what was set aside for it.
  needs_.memory_request = 0;
  Result result{.problems = problems.size()};
  const bool moves = action_ == jobspec::NodeHealthAction::Move;
  if (moves) result.unfit = unfit_because(problems);
  for (const NodeProblem& problem : problems) {
    if (!moves || !problem.of_the_node) result.told.push_back(problem.what);
  }
  return result;
}

}  // namespace dsj::agent

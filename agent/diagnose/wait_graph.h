// Who waits for whom, from the looks at all ranks (rank_look.h): within the world, and within each
// group of ranks with its own collectives. Pure.
//
// A rank in a collective waits for the ranks of its group that have not begun it: for those
// furthest behind. If all have begun it, it waits for the rank that it names, if that one is still
// in it. A rank shows all its groups, and a group appears only after all its members joined; so a
// rank that does not show a group is no longer a member.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/diagnose/rank_look.h"

namespace dsj::agent {

/// A group of ranks, combined from all looks.
struct RankGroup {
  int64_t id = 0;             ///< 0 means the world
  std::string name;           ///< empty for the world
  int64_t within = -1;        ///< as in GroupLook
  std::vector<int> members;   ///< ascending; if the rule is unknown, the ranks that show the group
  std::vector<int> shown_by;  ///< members that show it, ascending; others do not count
  int64_t lowest = 0, highest = 0;  ///< the last collectives that they have begun
  std::vector<int> behind;          ///< the ranks that have begun no more than `lowest`
};

class WaitGraph {
 public:
  /// `looks` has all ranks, in order, and must outlive the graph.
  explicit WaitGraph(std::span<const RankLook> looks);

  /// The world first, then groups by id.
  const std::vector<RankGroup>& groups() const { return groups_; }
  /// What `rank` shows of a group; null if nothing.
  const GroupLook* look(const RankGroup& group, int rank) const;
  /// Ranks that others wait for and that wait for no rank, ascending.
  std::vector<int> roots() const;
  /// Ranks on a cycle of waits, and ranks on a path between cycles; ascending.
  std::vector<int> circle() const;

  /// Ranks in one collective that wait for some of the given ranks.
  struct Wait {
    size_t group = 0;  ///< index in groups()
    CollectiveSeen what;
    std::vector<int> ranks;
    bool begun = false;  ///< a rank that they wait for has begun it
  };
  /// Which ranks wait for `ranks` directly, outer groups first.
  std::vector<Wait> waits_for(std::span<const int> ranks) const;

 private:
  /// `rank` waits in a collective of `group`.
  struct Edge {
    int rank = 0;
    size_t group = 0;
    int on = -1;  ///< for this rank; -1: for all ranks that are behind in the group
  };
  void add(size_t group, int rank);
  /// The last collective of a group that `rank` has begun, and the last that has ended.
  std::pair<int64_t, int64_t> stand(const RankGroup& group, int rank) const;
  std::vector<std::vector<size_t>> targets() const;

  const std::span<const RankLook> looks_;
  std::vector<RankGroup> groups_;
  std::vector<Edge> edges_;
};

/// "all_gather #9 (layer 3, 4096 bytes) of rail 1 (ranks 1 and 3)"; without a group for the world.
std::string text_in(const RankGroup& group, const CollectiveSeen& what);

/// "rank 2", "ranks 0-2 and 5"; a list of many intervals ends with "and more".
std::string ranks_text(std::span<const int> ranks);
/// "0-2, 5".
std::string ranks_list(std::span<const int> ranks);

}  // namespace dsj::agent

// Who waits for whom, by what every rank shows (rank_look.h): within the world, and within each
// group of ranks that has collectives of its own. Pure.
//
// A rank that is in a collective waits for those of its group that have not begun it: for the ones
// that are furthest behind. Where all have begun it, it waits for whom it says, if that one is in it
// still. A rank shows all its groups, and is in none before all of the group have joined; so a rank
// that does not show one is no member any more.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/diagnose/rank_look.h"

namespace dsj::agent {

/// A group of ranks as all of them show it.
struct RankGroup {
  int64_t id = 0;             ///< 0: the world
  std::string name;           ///< of the world empty
  int64_t within = -1;        ///< as GroupLook's
  std::vector<int> members;   ///< ascending; of one whose rule is not known those that show it
  std::vector<int> shown_by;  ///< the members that show it, ascending; the others do not count
  int64_t lowest = 0, highest = 0;  ///< the last collectives that they have begun
  std::vector<int> behind;          ///< those that have begun no more than `lowest`
};

class WaitGraph {
 public:
  /// `looks`: of all ranks, in order; they must outlive the graph.
  explicit WaitGraph(std::span<const RankLook> looks);

  /// The world first, then groups by number.
  const std::vector<RankGroup>& groups() const { return groups_; }
  /// What `rank` shows of a group; null: nothing.
  const GroupLook* look(const RankGroup& group, int rank) const;
  /// Ranks that others wait for and that wait for nobody, ascending.
  std::vector<int> roots() const;
  /// Ranks that wait for one another, or for such ranks only and are waited for by them; ascending.
  std::vector<int> circle() const;

  /// Ranks that are in one collective and wait for some of those asked about.
  struct Wait {
    size_t group = 0;  ///< of groups()
    CollectiveSeen what;
    std::vector<int> ranks;
    bool begun = false;  ///< one that they wait for has begun it
  };
  /// Who waits for `ranks` directly, outer groups first.
  std::vector<Wait> waits_for(std::span<const int> ranks) const;

 private:
  /// `rank` is in a collective of `group`, and waits.
  struct Edge {
    int rank = 0;
    size_t group = 0;
    int on = -1;  ///< this rank; -1: all that are behind in the group
  };
  void add(size_t group, int rank);
  /// The last collective of a group that `rank` has begun, and has ended.
  std::pair<int64_t, int64_t> stand(const RankGroup& group, int rank) const;
  std::vector<std::vector<size_t>> targets() const;

  const std::span<const RankLook> looks_;
  std::vector<RankGroup> groups_;
  std::vector<Edge> edges_;
};

/// "all_gather #9 (layer 3, 4096 bytes) of rail 1 (ranks 1 and 3)"; of the world without a group.
std::string text_in(const RankGroup& group, const CollectiveSeen& what);

/// "rank 2", "ranks 0-2 and 5"; a list of many stretches ends with "and more".
std::string ranks_text(std::span<const int> ranks);
/// "0-2, 5".
std::string ranks_list(std::span<const int> ranks);

}  // namespace dsj::agent

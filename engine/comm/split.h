// Who is in which part of a group, and how the ranks find out. Internal to comm.
// Tested by: tests/engine/comm/split_test.cc
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/comm/rendezvous.h"

namespace dsj::comm {

/// members[colour]: the group's ranks of one part, in its order; a list per part, not per rank. A colour
/// below 0 makes none. parts: by rank. BadInput: not all name the same split.
Result<std::map<int, std::vector<int>>> members_of(std::span<const Part> parts);

/// The rendezvous of this rank's part, for which `key` is used; null: it is in none. Collective over
/// `rendezvous`. A rank does three operations on the store whatever the number of ranks.
Result<std::unique_ptr<Rendezvous>> split(Rendezvous& rendezvous, const std::string& key,
                                          const Part& part);

}  // namespace dsj::comm

// Finds which ranks are in which part of a group. Internal to comm.
// Tested by: tests/engine/comm/split_test.cc
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/comm/rendezvous.h"

namespace dsj::comm {

/// members[colour]: the group's ranks in that part, in the part's order. Negative colours are in no
/// part. `parts`: by rank. BadInput: the ranks name different splits.
Result<std::map<int, std::vector<int>>> members_of(std::span<const Part> parts);

/// The rendezvous of this rank's part; null if it is in none. Uses `key` in the store. Collective
/// over `rendezvous`. A rank does three store operations, independent of the number of ranks.
Result<std::unique_ptr<Rendezvous>> split(Rendezvous& rendezvous, const std::string& key,
                                          const Part& part);

}  // namespace dsj::comm

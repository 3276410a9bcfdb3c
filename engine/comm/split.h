// Who is in which part of a group, and how the ranks find out. Internal to comm.
// Tested by: tests/engine/comm/split_test.cc
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/comm/rendezvous.h"

namespace dsj::comm {

/// members[rank]: the group's ranks of the part that `rank` is in, in the part's order; empty: it is
/// in none. parts: by rank. BadInput: not all name the same split.
Result<std::vector<std::vector<int>>> members_of(std::span<const Part> parts);

/// A list of ranks as runs, "0+4x3,20" for 0, 4, 8 and 20: short however many there are. And back.
std::string text_of_ranks(std::span<const int> ranks);
std::vector<int> parse_ranks(const std::string& text);

/// The rendezvous of this rank's part, for which `key` is used; null: it is in none. Collective over
/// `rendezvous`. A rank does three operations on the store whatever the number of ranks.
Result<std::unique_ptr<Rendezvous>> split(Rendezvous& rendezvous, const std::string& key,
                                          const Part& part);

}  // namespace dsj::comm

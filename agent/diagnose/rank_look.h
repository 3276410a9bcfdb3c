// What an agent sees of its rank when it looks for the cause of a hang: what the rank recorded in
// its flight log (job/flight_log.h), and whether its process is stopped. Plain data, its JSON, and
// how it is made. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace dsj::agent {

/// Monotonic time with an arbitrary origin. Passed in, never read here.
using Time = std::chrono::milliseconds;

/// How long a rank's steps took, as totals since it started (job/flight_log.h).
struct Pace {
  int64_t steps = 0;    ///< 0 if unknown
  int64_t step_us = 0;  ///< duration of all these steps
  int64_t own_us = 0;   ///< part of it outside of collectives
  bool operator==(const Pace&) const = default;
};

/// A collective, identified by what must be the same on every rank.
struct CollectiveSeen {
  int64_t sequence = 0;
  std::string kind;  ///< "all_gather"
  std::string unit;  ///< "layer 3"; may be empty
  int64_t bytes = 0;
  auto operator<=>(const CollectiveSeen&) const = default;
};
/// "all_gather #412 (layer 3, 4096 bytes)".
std::string to_text(const CollectiveSeen& collective);

/// A group that a rank belongs to, and what the rank did there (FlightGroup).
struct GroupLook {
  int64_t id = 0;
  std::string name;     ///< "rail 1"
  std::string members;  ///< ranks of the world as a rule (job/rank_runs.h); empty if unknown
  int64_t within = -1;  ///< the group whose operations contain this group's; 0: the world, -1: none
  int64_t issued = 0, ended = 0;
  int64_t quiet_ms = 0;  ///< as in RankLook, for this group
  int waits_for = -1;    ///< the rank that its running collective waits for; -1 if unknown
  std::vector<CollectiveSeen> begun;  ///< as in RankLook
  bool operator==(const GroupLook&) const = default;
};

struct RankLook {
  bool known = false;    ///< it has a flight log that could be read
  bool stopped = false;  ///< its process is stopped, for example by SIGSTOP
  std::string phase;     ///< "training", "evaluating", ... (name_of(FlightPhase))
  int64_t step = 0;      ///< the step in progress
  int64_t ticks = 0, issued = 0, ended = 0;
  int64_t quiet_ms = 0;  ///< since its last collective began or ended; 0 if it had none
  /// Its last collectives, oldest first. The last one is running if its number is above `ended`.
  std::vector<CollectiveSeen> begun;
  int waits_for = -1;  ///< as in GroupLook, for the world
  std::vector<GroupLook> groups;
  bool operator==(const RankLook&) const = default;
};

/// The number of the last collective that it began, ended or not.
int64_t begun(const RankLook& look);
int64_t begun(const GroupLook& look);
/// It is in a collective that has not ended.
bool inside(const RankLook& look);
bool inside(const GroupLook& look);
/// It made progress between the two looks.
bool moved(const RankLook& before, const RankLook& after);

/// `flight` is the content of its flight log, `now_ns` is flight_clock().
RankLook look_at(std::string_view flight, bool stopped, int64_t now_ns);

nlohmann::json to_json(const RankLook& look);
/// BadInput says what is wrong.
Result<RankLook> rank_look_from_json(const nlohmann::json& object);

}  // namespace dsj::agent

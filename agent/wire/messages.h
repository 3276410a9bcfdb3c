// What agents tell each other. A worker's beat carries its whole state; the answer is what worker
// 0's agent wants from it now. Both are levels, not edges: a lost or repeated message changes
// nothing. Plain data and its JSON; no transport here.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/diagnose/rank_look.h"
#include "common/result.h"

namespace dsj::agent {

/// One rank of the attempt that a worker last started.
struct RankState {
  bool running = true;
  int exit_code = 0;       ///< if the rank ended by itself
  int signal = 0;          ///< if a signal ended the rank
  bool stopped = false;    ///< that signal was SIGKILL from its own agent
  bool asked = false;      ///< it had got SIGTERM before it ended
  bool own_codes = false;  ///< a user's own program: only exit code 0 has a meaning
  int exit_order = 0;      ///< 1: first of this worker's ranks to end
  int64_t step = 0;        ///< the last step that it reported
  Pace pace = {};
  std::string reason;      ///< of its error event; empty: none came
  std::string message;     ///< of its error event
  std::string last_words;  ///< the end of its log, if it failed
  bool operator==(const RankState&) const = default;
};

/// Where a worker takes part in measuring the links between nodes (link_meter.h).
struct LinkPlace {
  std::string node;  ///< empty: it does not take part
  std::string address;
  int port = 0;
  std::string key;     ///< of its own making: who shows it may send
  bool moves = false;  ///< its pod goes elsewhere if its link is too slow
  bool operator==(const LinkPlace&) const = default;
};

/// A transfer to a peer that a worker has to make, once for each round.
struct LinkOrder {
  int64_t round = 0;  ///< 0: none
  std::string address;
  int port = 0;
  std::string key;
  bool operator==(const LinkOrder&) const = default;
};

/// What became of it.
struct LinkRate {
  int64_t round = 0;             ///< 0: none
  int64_t bytes_per_second = 0;  ///< 0: it could not be measured
  std::string problem;           ///< why
  bool operator==(const LinkRate&) const = default;
};

struct WorkerReport {
  int worker = 0;
  int64_t incarnation = 1;  ///< this worker's life; a higher one replaces a lower one
  int64_t sequence = 0;     ///< rises with every beat; an overtaken beat is dropped
  int slots = 1;
  int64_t attempt = 0;          ///< the attempt of `ranks`; 0: none yet
  int64_t fence = 0;            ///< a promise: it will start no rank of this or an older attempt
  bool stop_requested = false;  ///< the whole job must save and stop
  bool departing = false;       ///< its pod is taken away: save, let it go, the others stay
  bool leaving = false;         ///< its last beat: no rank is left and the agent exits
  std::vector<RankState> ranks;
  int64_t look = 0;             ///< the request that `looks` answer; 0: none
  std::vector<RankLook> looks;  ///< of `ranks`, in their order
  int64_t stacks = 0;           ///< the request that `where` answers; 0: none
  /// Of `ranks`, in their order: where their first threads are (agent/stacks/stack_text.h).
  std::vector<std::string> where;
  LinkPlace link = {};
  LinkRate link_rate = {};  ///< of the order that is in force
  bool operator==(const WorkerReport&) const = default;
};

enum class Order {
  Idle,     ///< end the ranks of `attempt` and older; start none
  Run,      ///< have the ranks of `attempt` running
  Preempt,  ///< send SIGTERM to the ranks of `attempt`: they save and exit
  Finish,   ///< end all ranks, then exit with `exit_code`
};

struct Directive {
  Order order = Order::Idle;
  int64_t attempt = 0;
  int world_size = 0;
  int first_rank = 0;       ///< the worker's ranks are first_rank .. first_rank + slots - 1
  std::string master_addr;  ///< of the ranks' store
  int master_port = 0;
  int exit_code = 0;
  Time next_beat{500};  ///< the longest wait before the next beat
  int64_t look = 0;     ///< above 0: report what the ranks show, once for each number
  int64_t stacks = 0;   ///< above 0: take the ranks' stacks, once for each number
  LinkOrder link = {};
  std::string slow_link =
      {};  ///< the link of this worker's node is far below the others': the figures
  bool operator==(const Directive&) const = default;
};

/// The most bytes of a beat or its answer. Last words are cut so that a report stays below it, and looks at very
/// many ranks leave out the groups.
inline constexpr size_t kMessageBytesMax = 256 * 1024;
inline constexpr size_t kLastWordsBytesMax = 2000;
inline constexpr size_t kWhereBytesMax = 500;
/// Of the texts about links.
inline constexpr size_t kLinkTextMax = 2000;

/// One line of JSON. Bytes of a log that are not UTF-8 are replaced.
std::string to_text(const WorkerReport& report);
std::string to_text(const Directive& directive);
/// BadInput, with the key: an unknown shape, a missing key, a number out of range.
Result<WorkerReport> worker_report_from_json(const std::string& text);
Result<Directive> directive_from_json(const std::string& text);

}  // namespace dsj::agent

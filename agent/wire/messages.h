// The messages between agents. A worker's beat contains its whole state; the answer contains the
// whole order of worker 0's agent. Both are levels, not edges: a lost or repeated message changes
// nothing. Plain data and its JSON, without transport.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/diagnose/rank_look.h"
#include "common/result.h"

namespace dsj::agent {

/// One rank of the attempt that this worker started last.
struct RankState {
  bool running = true;
  int exit_code = 0;       ///< if the rank ended by itself
  int signal = 0;          ///< if a signal ended the rank
  bool stopped = false;    ///< that signal was SIGKILL from its own agent
  bool asked = false;      ///< it received SIGTERM before it ended
  bool own_codes = false;  ///< runs a user's program: only exit code 0 has a meaning
  int exit_order = 0;      ///< 1 for the first of this worker's ranks that ended
  int64_t step = 0;        ///< the last step reported
  Pace pace = {};
  std::string reason;      ///< from its error event; empty if none came
  std::string message;     ///< from its error event
  std::string last_words;  ///< the end of its log, if it failed
  bool operator==(const RankState&) const = default;
};

/// A worker's part in the measurement of the links between nodes (link_meter.h).
struct LinkPlace {
  std::string node;  ///< empty if it does not take part
  std::string address;
  int port = 0;
  std::string key;     ///< made by this worker: a sender must present it
  bool moves = false;  ///< its pod moves to another node if its link is too slow
  bool operator==(const LinkPlace&) const = default;
};

/// A transfer to a peer that a worker must make, once per round.
struct LinkOrder {
  int64_t round = 0;  ///< 0 if there is no order
  std::string address;
  int port = 0;
  std::string key;
  bool operator==(const LinkOrder&) const = default;
};

/// The result of a transfer.
struct LinkRate {
  int64_t round = 0;             ///< 0 if there is none
  int64_t bytes_per_second = 0;  ///< 0 if it could not be measured
  std::string problem;           ///< why it could not be measured
  bool operator==(const LinkRate&) const = default;
};

struct WorkerReport {
  int worker = 0;
  int64_t incarnation = 1;  ///< number of this worker's pod; a higher one replaces a lower one
  int64_t sequence = 0;     ///< rises with every beat; an overtaken beat is dropped
  int slots = 1;
  int64_t attempt = 0;          ///< the attempt of `ranks`; 0 if none yet
  int64_t fence = 0;            ///< promises to start no rank of this or an older attempt
  bool stop_requested = false;  ///< the whole job must save and stop
  bool departing = false;       ///< its pod is being removed: save and let it go; the others stay
  bool leaving = false;         ///< its last beat: no rank is left and the agent exits
  std::vector<RankState> ranks;
  int64_t look = 0;             ///< the request that `looks` answer; 0 if none
  std::vector<RankLook> looks;  ///< one per entry of `ranks`
  int64_t stacks = 0;           ///< the request that `where` answers; 0 if none
  /// One per entry of `ranks`: where its main thread is (agent/stacks/stack_text.h).
  std::vector<std::string> where;
  LinkPlace link = {};
  LinkRate link_rate = {};  ///< for the current order
  bool operator==(const WorkerReport&) const = default;
};

enum class Order {
  Idle,     ///< end the ranks of `attempt` and older; start none
  Run,      ///< let the ranks of `attempt` run
  Preempt,  ///< send SIGTERM to the ranks of `attempt`: they save and exit
  Finish,   ///< end all ranks, then exit with `exit_code`
};

struct Directive {
  Order order = Order::Idle;
  int64_t attempt = 0;
  int world_size = 0;
  int first_rank = 0;       ///< the worker's ranks are first_rank .. first_rank + slots - 1
  std::string master_addr;  ///< address of the ranks' store
  int master_port = 0;
  int exit_code = 0;
  Time next_beat{500};  ///< the longest wait before the next beat
  int64_t look = 0;     ///< if above 0: report looks at the ranks, once per number
  int64_t stacks = 0;   ///< if above 0: take the ranks' stacks, once per number
  LinkOrder link = {};
  std::string slow_link =
      {};  ///< not empty if this node's link is far slower than the others': the figures
  bool operator==(const Directive&) const = default;
};

/// Maximum size of a beat or an answer. Last words are cut so that a report stays below it, and
/// looks at very many ranks omit the groups.
inline constexpr size_t kMessageBytesMax = 256 * 1024;
inline constexpr size_t kLastWordsBytesMax = 2000;
inline constexpr size_t kWhereBytesMax = 500;
/// Maximum size of the texts about links.
inline constexpr size_t kLinkTextMax = 2000;

/// One line of JSON. Bytes that are not UTF-8 are replaced.
std::string to_text(const WorkerReport& report);
std::string to_text(const Directive& directive);
/// BadInput names the key: an unknown shape, a missing key, or a number out of range.
Result<WorkerReport> worker_report_from_json(const std::string& text);
Result<Directive> directive_from_json(const std::string& text);

}  // namespace dsj::agent

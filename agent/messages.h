// What agents tell each other: a worker's beat carries its whole state, the answer is what worker
// 0's agent wants of it now. Both are levels, not edges: a lost or repeated message changes
// nothing. Plain data and its JSON; no transport here.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::agent {

/// Monotonic time with any origin; passed in, never read here.
using Time = std::chrono::milliseconds;

/// One rank of the attempt that a worker last started.
struct RankState {
  bool running = true;
  int exit_code = 0;       ///< of a rank that ended by itself
  int signal = 0;          ///< of a rank that a signal ended
  bool stopped = false;    ///< that signal was its own agent's SIGKILL
  bool asked = false;      ///< SIGTERM had been sent to it before it ended
  bool own_codes = false;  ///< of a user's own program: of its exit codes only 0 has a meaning
  int exit_order = 0;      ///< 1: first of this worker's ranks to end
  int64_t step = 0;        ///< last step it told
  std::string reason;      ///< of its error event; empty: it told none
  std::string message;     ///< of its error event
  std::string last_words;  ///< end of its log, when it failed
  bool operator==(const RankState&) const = default;
};

struct WorkerReport {
  int worker = 0;
  int64_t incarnation = 1;  ///< which life of this worker; a higher one replaces a lower one
  int64_t sequence = 0;     ///< rises with every beat: an overtaken one is dropped
  int slots = 1;
  int64_t attempt = 0;  ///< that `ranks` belong to; 0: none yet
  int64_t fence = 0;    ///< promise: no rank of this or an older attempt will be started any more
  bool stop_requested = false;  ///< it got SIGTERM: the job shall save and stop
  bool leaving = false;         ///< last beat: no rank is left and the agent exits
  std::vector<RankState> ranks;
  bool operator==(const WorkerReport&) const = default;
};

enum class Order {
  Idle,     ///< end ranks of `attempt` and older, start none of them
  Run,      ///< have the ranks of `attempt` running
  Preempt,  ///< SIGTERM to the ranks of `attempt`: save one step, exit kExitPreempted
  Finish,   ///< end what runs and exit with `exit_code`
};

struct Directive {
  Order order = Order::Idle;
  int64_t attempt = 0;
  int world_size = 0;
  int first_rank = 0;       ///< the worker's ranks are first_rank .. first_rank + slots - 1
  std::string master_addr;  ///< the ranks' store
  int master_port = 0;
  int exit_code = 0;
  Time next_beat{500};  ///< at the latest
  bool operator==(const Directive&) const = default;
};

/// Most bytes of a beat or its answer on the wire; last words are cut so that a report stays below.
inline constexpr size_t kMessageBytesMax = 256 * 1024;
inline constexpr size_t kLastWordsBytesMax = 2000;

/// One line of JSON; bytes of a log that are not UTF-8 are replaced.
std::string to_text(const WorkerReport& report);
std::string to_text(const Directive& directive);
/// An unknown shape, a missing key or a number out of range is BadInput with the key.
Result<WorkerReport> worker_report_from_json(const std::string& text);
Result<Directive> directive_from_json(const std::string& text);

}  // namespace dsj::agent

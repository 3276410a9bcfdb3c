// The reports that worker 0's agent sends to the keeper of the job's status: `dsj run`, which reads
// one JSON object per line, or in a cluster the thread that writes to the API server. "report" is
// the kind. Rank 0's events are forwarded under their own kinds and names (events.h). Pure.
#pragma once

#include "job/report/events.h"

namespace dsj::report {

/// The ranks of an attempt are starting.
struct Attempt {
  static constexpr char kKind[] = "attempt";
  int64_t attempt = 0;
  int64_t world_size = 0;
  static constexpr auto fields() {
    return std::tuple{
        field(&Attempt::attempt, "attempt").in_status("attempt").described(", attempt "),
        field(&Attempt::world_size, "worldSize").in(Unit::Ranks)};
  }
};

/// An attempt ended early. The restart budget (restart_budget.h) already includes the charge.
struct Failure {
  static constexpr char kKind[] = "failure";
  int64_t attempt = 0;
  int64_t worker = -1;     ///< -1 if unknown
  int64_t rank = -1;       ///< -1: the whole worker
  int64_t exit_code = 0;   ///< of the rank
  int64_t signal = 0;      ///< 0 if it exited with the exit code
  int64_t step = 0;        ///< the last step of the attempt
  std::string reason;      ///< one word
  std::string message;     ///< one sentence
  std::string last_words;  ///< the end of the rank's log
  // For a hang, if flight logs show it:
  std::optional<std::string> collective;     ///< "all_gather #9 (layer 3, 8 bytes)": others wait
  std::optional<std::string> missing_ranks;  ///< all ranks to blame: "2, 5-7"
  int64_t pause_ms = 0;
  int64_t restarts_used = 0;
  int64_t restarts_total = 0;
  int64_t restart_limit = 0;
  int64_t saved_step = -1;
  bool restart = false;  ///< another attempt follows after the pause
  static constexpr auto fields() {
    return std::tuple{field(&Failure::attempt, "attempt"),
                      field(&Failure::worker, "worker"),
                      field(&Failure::rank, "rank"),
                      field(&Failure::exit_code, "exitCode"),
                      field(&Failure::signal, "signal"),
                      field(&Failure::step, "step"),
                      field(&Failure::reason, "reason"),
                      field(&Failure::message, "message"),
                      field(&Failure::last_words, "lastWords"),
                      field(&Failure::collective, "collective"),
                      field(&Failure::missing_ranks, "missingRanks"),
                      field(&Failure::pause_ms, "pauseMs").in(Unit::Milliseconds),
                      field(&Failure::restarts_used, "restartsUsed"),
                      field(&Failure::restarts_total, "restartsTotal"),
                      field(&Failure::restart_limit, "restartLimit"),
                      field(&Failure::saved_step, "savedStep"),
                      field(&Failure::restart, "restart")};
  }
};

/// The set of ranks that slow down each step has changed (agent/diagnose/straggler_watch.h).
struct Stragglers {
  static constexpr char kKind[] = "stragglers";
  int64_t count = 0;
  std::optional<std::string> who;  ///< one sentence; absent if there are no more stragglers
  static constexpr auto fields() {
    return std::tuple{field(&Stragglers::count, "count"),
                      field(&Stragglers::who, "who").in_status("stragglers").described(", ")};
  }
};

/// The last report.
struct End {
  static constexpr char kKind[] = "end";
  int64_t exit_code = 1;  ///< an ExitCode (contract.h)
  std::string reason;
  std::string message;
  static constexpr auto fields() {
    return std::tuple{field(&End::exit_code, "exitCode"), field(&End::reason, "reason"),
                      field(&End::message, "message")};
  }
};

using Report = std::variant<Attempt, Failure, Stragglers, End, Warning, Resolved, Resumed, Damage,
                            Step, Log, Eval, CutRows, Note, Memory, Checkpoint, Exported>;

static_assert(is_described<Attempt> && is_described<Failure> && is_described<Stragglers> &&
              is_described<End>);

/// The report as one line of JSON with its newline. Bytes that are not UTF-8 are replaced.
std::string to_line(const Report& report);
/// nullopt if the line is not a report or has an unknown kind.
std::optional<Report> report_from_line(const std::string& line);

/// Rank 0's event as worker 0's agent forwards it; nullopt if it does not. The agent itself
/// forwards warnings of every rank.
std::optional<Report> passed_on(const Event& event);

}  // namespace dsj::report

// The events that a rank sends its agent: one JSON object per line on descriptor DSJ_EVENT_FD
// (contract.h). "event" is the kind; the tables below list the other names. They are a stable
// interface: ranks of users' own programs write them (docs/cluster.md), scripts read them in
// metrics.jsonl. A reader ignores unknown names. Strict JSON: a number that is not finite is the
// string "NaN", "Infinity" or "-Infinity" (wire.h), which Python's float() and JavaScript's
// Number() accept. Null means unknown.
//
// Everything here is pure. field.h describes the tables.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>

#include "job/report/field.h"

namespace dsj::report {

/// Every rank, once it has read and accepted its input.
struct Start {
  static constexpr char kKind[] = "start";
  int64_t pid = 0;
  int64_t rank = 0;
  static constexpr auto fields() {
    return std::tuple{field(&Start::pid, "pid"), field(&Start::rank, "rank")};
  }
};

/// Rank 0, before the first step.
struct Resolved {
  static constexpr char kKind[] = "resolved";
  nlohmann::json config = nlohmann::json::object();  ///< ds_config, resolved
  nlohmann::json origins;                            ///< [{path, value, from}]; null if not sent
  std::optional<int64_t> total_steps;
  static constexpr auto fields() {
    return std::tuple{
        field(&Resolved::config, "config").in_status("resolvedConfig"),
        field(&Resolved::origins, "origins"),
        field(&Resolved::total_steps, "total_steps").in_status("totalSteps").described(" of ")};
  }
};

/// Rank 0, once a checkpoint is loaded: the run continues after `step`.
struct Resumed {
  static constexpr char kKind[] = "resumed";
  int64_t step = 0;
  std::string path;
  static constexpr auto fields() {
    return std::tuple{field(&Resumed::step, "step").required().in_status("step"),
                      field(&Resumed::path, "path").in_status("path").described(": ")};
  }
};

/// Rank 0, before Resumed, if damaged checkpoints may be newer than the loaded one. The run skips
/// them.
struct Damage {
  static constexpr char kKind[] = "damage";
  int64_t step = 0;     ///< the highest step of the damaged ones
  std::string message;  ///< the checkpoint used; of each damaged one: new name, file, block, tensor
  static constexpr auto fields() {
    return std::tuple{field(&Damage::step, "step").required().in_status("step"),
                      field(&Damage::message, "message").in_status("message").described(": ")};
  }
};

/// Rank 0, after each step: a line of metrics.jsonl, with these names in this order. The other
/// ranks send only `step`, as a heartbeat.
struct Step {
  static constexpr char kKind[] = "step";
  int64_t step = 0;                 ///< from 1
  std::optional<double> loss;       ///< mean over micro-steps and ranks, before the update
  std::optional<double> lr;         ///< of this step's update
  std::optional<double> grad_norm;  ///< L2 over all ranks, unscaled, before clipping
  std::optional<double> loss_scale;
  std::optional<bool> skipped;    ///< the gradient was not finite: no update
  std::optional<int64_t> tokens;  ///< of this step, all ranks, without padding
  std::optional<double> tokens_per_second;
  std::optional<double> step_seconds;
  std::optional<int64_t> wire_bytes;        ///< sent by rank 0 in this step, without control
  std::optional<int64_t> host_rss_bytes;    ///< rank 0's peak resident set so far
  std::optional<std::string> bad_gradient;  ///< if skipped: the first parameter with a bad gradient
  /// The step's curricula: metric → difficulty, "random_ltd" → tokens kept per row.
  std::optional<std::map<std::string, int64_t>> difficulty;
  /// The objective's (rewards/chosen ...), names in the line; means over micro-steps and ranks.
  std::optional<std::map<std::string, double>> metrics;
  static constexpr auto fields() {
    return std::tuple{field(&Step::step, "step").required(),
                      field(&Step::loss, "loss").in_status("loss").described(", loss "),
                      field(&Step::lr, "lr").in_status("learningRate").described(", lr "),
                      field(&Step::grad_norm, "grad_norm").in_status("gradNorm"),
                      field(&Step::loss_scale, "loss_scale").in_status("lossScale"),
                      field(&Step::skipped, "skipped"),
                      field(&Step::tokens, "tokens").in(Unit::Tokens),
                      field(&Step::tokens_per_second, "tokens_per_second")
                          .in(Unit::TokensPerSecond)
                          .in_status("tokensPerSecond")
                          .described(", "),
                      field(&Step::step_seconds, "step_seconds").in(Unit::Seconds),
                      field(&Step::wire_bytes, "wire_bytes").in(Unit::Bytes),
                      field(&Step::host_rss_bytes, "host_rss_bytes").in(Unit::Bytes),
                      field(&Step::bad_gradient, "bad_gradient")
                          .of_some_runs()
                          .in_status("badGradient")
                          .described(", skipped, not finite: the gradient of "),
                      field(&Step::difficulty, "difficulty").of_some_runs(),
                      field(&Step::metrics, "metrics").of_some_runs()};
  }
};

/// Rank 0, every logging_steps.
struct Log {
  static constexpr char kKind[] = "log";
  int64_t step = 0;
  std::optional<double> loss;  ///< mean since the last log
  std::optional<double> grad_norm;
  std::optional<double> lr;
  std::optional<double> epoch;
  std::optional<std::map<std::string, double>> metrics;  ///< as in Step; means since the last log
  static constexpr auto fields() {
    return std::tuple{
        field(&Log::step, "step").required(), field(&Log::loss, "loss"),
        field(&Log::grad_norm, "grad_norm"),  field(&Log::lr, "learning_rate"),
        field(&Log::epoch, "epoch"),          field(&Log::metrics, "metrics").of_some_runs()};
  }
};

/// Rank 0, after an evaluation. In metrics.jsonl: a line of its own after the step's line, with
/// these names in this order.
struct Eval {
  static constexpr char kKind[] = "eval";
  int64_t step = 0;
  std::optional<double> loss;  ///< engine/train/step/evaluate.h; nullopt if no row has a target
  std::optional<double> epoch;
  std::optional<double> seconds;
  std::optional<int64_t> rows;  ///< of all ranks
  std::optional<double> rows_per_second;
  std::optional<int64_t> targets;                        ///< of all ranks
  std::optional<int64_t> rows_without_target;            ///< of `rows`; not in the loss
  std::optional<std::map<std::string, double>> metrics;  ///< as in Step: eval_rewards/chosen ...
  static constexpr auto fields() {
    return std::tuple{
        field(&Eval::step, "step").required().in_status("evalStep"),
        field(&Eval::loss, "eval_loss").in_status("evalLoss").described(", eval loss "),
        field(&Eval::epoch, "epoch"),
        field(&Eval::seconds, "eval_runtime").in(Unit::Seconds),
        field(&Eval::rows, "eval_samples"),
        field(&Eval::rows_per_second, "eval_samples_per_second"),
        field(&Eval::targets, "eval_targets"),
        field(&Eval::rows_without_target, "eval_rows_without_target"),
        field(&Eval::metrics, "metrics").of_some_runs()};
  }
};

/// Rank 0, before the first step of an attempt, if rows are longer than a row may be in training.
/// In metrics.jsonl, the line of that step has these names after its own.
struct CutRows {
  static constexpr char kKind[] = "cut_rows";
  int64_t step = 0;            ///< the step that the attempt continues from
  int64_t rows = 0;            ///< examined
  int64_t cut = 0;             ///< of these, rows longer than max_tokens
  int64_t tokens = 0;          ///< removed
  int64_t without_target = 0;  ///< cut rows that lost all their targets
  int64_t max_tokens = 0;      ///< per row: maxSeqLength, or the model's limit
  static constexpr auto fields() {
    return std::tuple{
        field(&CutRows::step, "step"),
        field(&CutRows::rows, "rows"),
        field(&CutRows::cut, "cut_rows").in_status("cutRows").described(", cut rows "),
        field(&CutRows::tokens, "cut_tokens").in(Unit::Tokens).in_status("cutTokens"),
        field(&CutRows::without_target, "rows_without_target").in_status("rowsWithoutTarget"),
        field(&CutRows::max_tokens, "max_seq_length")};
  }
};

/// Rank 0: a line of text for the user that a key of ds_config requests.
struct Note {
  static constexpr char kKind[] = "note";
  std::string text;
  static constexpr auto fields() { return std::tuple{field(&Note::text, "text")}; }
};

/// Every rank, after the last step: peak bytes of each class, and of all classes together.
struct Memory {
  static constexpr char kKind[] = "memory";
  std::map<std::string, int64_t> peak;
  int64_t total = 0;
  static constexpr auto fields() {
    return std::tuple{field(&Memory::peak, "peak").in(Unit::Bytes).in_status("peakBytes"),
                      field(&Memory::total, "total").in(Unit::Bytes)};
  }
};

/// Rank 0, after it has published a checkpoint.
struct Checkpoint {
  static constexpr char kKind[] = "checkpoint";
  int64_t step = 0;
  std::optional<int64_t> bytes;
  std::optional<double> seconds;
  std::string path;
  std::optional<double> stall_seconds;  ///< the part of `seconds` in which training waited
  /// Whether the attempt ends with this step. False if it continues, also if a stop was requested.
  std::optional<bool> last;
  static constexpr auto fields() {
    return std::tuple{
        field(&Checkpoint::step, "step").required().in_status("step"),
        field(&Checkpoint::bytes, "bytes").in(Unit::Bytes).in_status("sizeBytes").described(", "),
        field(&Checkpoint::seconds, "seconds")
            .in(Unit::Seconds)
            .in_status("durationSeconds")
            .described(" in "),
        field(&Checkpoint::path, "path").in_status("path").described(": "),
        field(&Checkpoint::stall_seconds, "stall_seconds").in(Unit::Seconds),
        field(&Checkpoint::last, "last")};
  }
};

/// Rank 0, once model/ is complete.
struct Exported {
  static constexpr char kKind[] = "exported";
  std::string path;
  static constexpr auto fields() {
    return std::tuple{field(&Exported::path, "path").in_status("modelPath")};
  }
};

/// Any rank, before an exit that is neither 0 nor preempted.
struct RankError {
  static constexpr char kKind[] = "error";
  std::string reason;  ///< one word
  std::string message;
  static constexpr auto fields() {
    return std::tuple{field(&RankError::reason, "reason"), field(&RankError::message, "message")};
  }
};

/// Any rank. Its agent adds the rank; -1: the agent's own warning.
struct Warning {
  static constexpr char kKind[] = "warning";
  std::optional<int64_t> rank;
  std::string message;
  static constexpr auto fields() {
    return std::tuple{field(&Warning::rank, "rank"), field(&Warning::message, "message")};
  }
};

/// Every rank, right before exit 0.
struct Done {
  static constexpr char kKind[] = "done";
  int64_t step = 0;
  static constexpr auto fields() { return std::tuple{field(&Done::step, "step").required()}; }
};

using Event = std::variant<Start, Resolved, Resumed, Damage, Step, Log, Eval, CutRows, Note, Memory,
                           Checkpoint, Exported, RankError, Warning, Done>;

static_assert(is_described<Start> && is_described<Resolved> && is_described<Resumed> &&
              is_described<Damage> && is_described<Step> && is_described<Log> &&
              is_described<Eval> && is_described<CutRows> && is_described<Note> &&
              is_described<Memory> && is_described<Checkpoint> && is_described<Exported> &&
              is_described<RankError> && is_described<Warning> && is_described<Done>);

/// The event as one line of JSON with its newline. Bytes that are not UTF-8 are replaced.
std::string to_line(const Event& event);

struct ReadEvent {
  Event event;
  nlohmann::json others;  ///< an object: names that the tables lack, and values of a wrong type
};
/// nullopt if the line is not an event (not a JSON object, an unknown kind, or an invalid step).
std::optional<ReadEvent> event_from_line(const std::string& line);

/// A line of metrics.jsonl with its newline: the table's names in order, null where unknown, then
/// `others`.
std::string metrics_line(const Step& step, const nlohmann::json& others);
/// For an evaluation and for cut rows: without unknown values, but eval_loss may be null.
std::string metrics_line(const Eval& eval, const nlohmann::json& others);
std::string metrics_line(const CutRows& rows, const nlohmann::json& others);

}  // namespace dsj::report

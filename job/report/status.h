// status.training and status.checkpoint of a job, which agent 0 writes: in the resource, or for `dsj run`
// in status.yaml. They have the newest reports, under their in_status() names, and fields of the status
// alone. crds/deepspeedjobs.yaml declares every field (tests/job/report/status_test.cc). Decimals are
// strings, times RFC 3339; a number that is not finite is "NaN", "Infinity" or "-Infinity". Pure;
// training_status.h updates it. field.h describes the tables.
#pragma once

#include <vector>

#include "job/report/reports.h"

namespace dsj::report {

/// status.lastFailure and an entry of status.failureHistory. Agent 0 passes it to the operator in
/// status.training.lastFailure; the operator adds pod and node.
struct FailureRecord {
  std::string time;
  std::string reason;
  std::optional<int64_t> attempt;
  std::optional<int64_t> step;
  std::optional<int64_t> rank;
  std::optional<std::string> pod;
  std::optional<std::string> node;
  std::optional<int64_t> exit_code;
  std::optional<int64_t> signal;
  std::optional<int64_t> worker;
  std::string message;
  std::optional<std::string> last_words;
  std::optional<std::string> collective;     ///< of a hang, as in Failure
  std::optional<std::string> missing_ranks;  ///< of a hang, as in Failure
  std::optional<int64_t> saved_step;         ///< the newest checkpoint at that time
  static constexpr auto fields() {
    return std::tuple{
        field(&FailureRecord::time, "time").in(Unit::Time),
        field(&FailureRecord::reason, "reason"),
        field(&FailureRecord::attempt, "attempt").described(", attempt "),
        field(&FailureRecord::step, "step").described(", step "),
        field(&FailureRecord::rank, "rank").described(", rank "),
        field(&FailureRecord::pod, "pod").described(", pod "),
        field(&FailureRecord::node, "node").described(" on "),
        field(&FailureRecord::exit_code, "exitCode").described(", exit code "),
        field(&FailureRecord::signal, "signal").described(", signal "),
        field(&FailureRecord::worker, "worker"),
        field(&FailureRecord::message, "message"),
        field(&FailureRecord::last_words, "lastWords"),
        field(&FailureRecord::collective, "collective").described(", in "),
        field(&FailureRecord::missing_ranks, "missingRanks").described(", without rank "),
        field(&FailureRecord::saved_step, "savedStep")};
  }
};

/// status.training.
struct Training {
  std::optional<int64_t> step;  ///< the last step done, or the one that the run resumed from
  std::optional<Resolved> resolved;
  std::optional<Attempt> attempt;
  std::optional<Step> newest;
  std::optional<int64_t> percentage;
  std::optional<int64_t> seconds_left;
  std::optional<int64_t> skipped_steps;  ///< in this attempt; absent if none
  std::optional<CutRows> cut_rows;
  std::optional<Eval> eval;
  std::optional<std::string> updated;  ///< when `newest` arrived
  std::optional<Memory> memory;
  std::optional<Exported> exported;
  std::optional<Stragglers> stragglers;
  std::optional<int64_t> world_size;
  std::optional<int64_t> stop_step;  ///< while the attempt stops: the step that all ranks save
  std::optional<FailureRecord> last_failure;
  /// Failures before the last one that status.restarts does not have yet, oldest first.
  std::optional<std::vector<FailureRecord>> earlier_failures;
  static constexpr auto fields() {
    return std::tuple{
        field(&Training::step, "step"),
        part(&Training::resolved),
        part(&Training::attempt),
        part(&Training::newest),
        field(&Training::percentage, "progressPercentage").in(Unit::Percent),
        field(&Training::seconds_left, "estimatedRemainingSeconds")
            .in(Unit::Seconds)
            .described(", ", " left"),
        field(&Training::skipped_steps, "skippedSteps").described(", skipped steps "),
        part(&Training::cut_rows),
        part(&Training::eval),
        field(&Training::updated, "lastUpdatedTime").in(Unit::Time).described(", reported "),
        part(&Training::memory),
        part(&Training::exported),
        part(&Training::stragglers),
        field(&Training::world_size, "worldSize").in(Unit::Ranks),
        field(&Training::stop_step, "stopStep"),
        field(&Training::last_failure, "lastFailure"),
        field(&Training::earlier_failures, "earlierFailures")};
  }
};

/// Of these, agent 0 keeps the newest.
inline constexpr size_t kEarlierFailuresMax = 10;

/// status.checkpoint.lastSaved.
struct Saved {
  std::optional<std::string> time;
  std::optional<int64_t> world_size;
  std::optional<Checkpoint> checkpoint;
  static constexpr auto fields() {
    return std::tuple{field(&Saved::time, "time").in(Unit::Time).described(", "),
                      field(&Saved::world_size, "worldSize").in(Unit::Ranks).described(", by "),
                      part(&Saved::checkpoint)};
  }
};

/// status.checkpoint.lastRestored.
struct Restored {
  std::optional<std::string> time;
  std::optional<Resumed> resumed;
  static constexpr auto fields() {
    return std::tuple{field(&Restored::time, "time").in(Unit::Time), part(&Restored::resumed)};
  }
};

/// status.checkpoint.lastDamaged.
struct Damaged {
  std::optional<std::string> time;
  std::optional<int64_t> attempt;  ///< identifies the event: at most one per attempt
  std::optional<Damage> damage;
  static constexpr auto fields() {
    return std::tuple{field(&Damaged::time, "time").in(Unit::Time).described(", "),
                      field(&Damaged::attempt, "attempt").described(", attempt "),
                      part(&Damaged::damage)};
  }
};
/// The message is cut to this length.
inline constexpr size_t kDamageBytesMax = 1000;

static_assert(is_described<FailureRecord> && is_described<Training> && is_described<Saved> &&
              is_described<Restored> && is_described<Damaged>);

/// Their names in the job's status.
inline constexpr char kTraining[] = "training";
inline constexpr char kCheckpoint[] = "checkpoint";
inline constexpr char kLastSaved[] = "lastSaved";        ///< in kCheckpoint
inline constexpr char kLastRestored[] = "lastRestored";  ///< in kCheckpoint
inline constexpr char kLastDamaged[] = "lastDamaged";    ///< in kCheckpoint

/// The known fields. An unknown decimal of a report that exists is null, except in lastSaved, which
/// has no nulls.
nlohmann::json status_json(const Training& training);
nlohmann::json status_json(const Saved& saved);
nlohmann::json status_json(const Restored& restored);
nlohmann::json status_json(const Damaged& damaged);
nlohmann::json status_json(const FailureRecord& failure);

/// nullopt if not an object.
std::optional<FailureRecord> failure_from_status(const nlohmann::json& object);
/// The record of a failure report. It has a signal or an exit code, and only if a rank is to blame.
FailureRecord record_of(const Failure& failure, const std::string& now);

}  // namespace dsj::report

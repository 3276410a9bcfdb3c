// What agent 0 writes into its job's status (status.training, status.checkpoint), and when. Pure;
// status_publisher.h does the writing. The status is one document, and the latest wins: a
// successful write contains everything reported before it, so skipped writes lose nothing.
// Important reports (attempt, checkpoint, failure, end) are retried until they are stored.
#pragma once

#include <deque>
#include <optional>

#include "agent/wire/messages.h"
#include "job/report/training_status.h"

namespace dsj::agent {

struct StatusPace {
  /// Time between writes that contain only steps, plus up to a fifth. Also the average time between
  /// all writes except those for an attempt, a failure, the end, and the checkpoint of a stop.
  Time interval{10'000};
  Time gap{2'000};  ///< minimum time between two writes
  int ahead = 6;    ///< checkpoints that may be written immediately before that average applies
};

class StatusBook {
 public:
  explicit StatusBook(int world_size, StatusPace pace = {})
      : status_(world_size, nullptr), pace_(pace) {}

  /// Adds one report. `wall` is RFC 3339.
  void take(const report::Report& report, const std::string& wall);
  /// A stop was requested: the step of the next checkpoint is the step at which the job stops,
  /// unless the checkpoint says that it is not the attempt's last.
  void stopping() { stopping_ = true; }

  /// When to write next; nullopt if everything is stored. `random` is in [0, 1).
  std::optional<Time> due(double random) const;
  /// Rises with each report; identifies what a write contained.
  int64_t version() const { return version_; }
  /// True if all important reports are stored.
  bool settled() const { return stored_ >= must_; }

  /// The fields of each write. The resolved ds_config is not among them: it is much larger and
  /// constant within an attempt, so it is written once, by another field manager.
  struct Document {
    int64_t attempt = 0;
    nlohmann::json training, checkpoint;
  };
  Document document() const;
  /// The resolved ds_config, or null if the status already has it; then call resolved_stored(). If
  /// it is larger than kResolvedBytesMax, a message replaces it.
  const nlohmann::json& resolved() const;
  void resolved_stored() { resolved_told_ = resolved_; }

  /// Takes over what an earlier incarnation of this agent left in the job's status. Call it until
  /// the first write of this incarnation succeeds. Earlier values stay where this incarnation has
  /// none, except momentary fields.
  void inherit(const nlohmann::json& current);

  /// Forgets the earlier failures that the operator has counted.
  void account(const nlohmann::json& current);

  void began(Time now) { last_write_ = now; }
  void stored(int64_t version);
  /// A write failed: the next one is due after `wait`.
  void failed(Time now, Time wait) { not_before_ = now + wait; }
  /// True if this incarnation has stored nothing yet.
  bool first() const { return stored_ == 0; }

 private:
  void keep_earlier(report::FailureRecord failure);

  report::TrainingStatus status_;
  std::optional<report::FailureRecord> last_failure_;
  std::deque<report::FailureRecord> earlier_failures_;
  std::optional<int64_t> stop_step_;
  nlohmann::json earlier_training_ = nlohmann::json::object();
  nlohmann::json earlier_checkpoint_ = nlohmann::json::object();
  StatusPace pace_;
  nlohmann::json resolved_, resolved_told_;  ///< null if there is none
  /// Versions up to `urgent_` must be written at once, up to `must_` before the agent ends.
  int64_t version_ = 0, must_ = 0, urgent_ = 0, stored_ = 0;
  std::optional<Time> last_write_;
  Time paid_until_{0};  ///< advances by `interval` with each write
  Time not_before_{0};
  bool stopping_ = false;
};

/// The fields of the resolved ds_config, to be applied to `current` like status_body().
nlohmann::json resolved_body(const nlohmann::json& resolved, const nlohmann::json& current);

/// The object to apply to `current`: only our fields, the uid, and the resource version that was
/// read, so that a concurrent write causes a conflict. nullopt if `current` has a newer attempt
/// than the document: then this agent is obsolete and must not write. If `first`, the document may
/// have no attempt yet.
std::optional<nlohmann::json> status_body(const StatusBook::Document& document,
                                          const nlohmann::json& current, bool first);

}  // namespace dsj::agent

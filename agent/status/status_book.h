// What agent 0 writes into its job's status (status.training, status.checkpoint), and when. Pure;
// status_publisher.h carries it out. It is one document and the latest wins: a write that succeeds
// holds everything reported before it, so leaving writes out loses nothing. What must be stored
// (attempt, checkpoint, failure, end) is tried again until it is.
#pragma once

#include <optional>

#include "agent/wire/messages.h"
#include "job/report/training_status.h"

namespace dsj::agent {

struct StatusPace {
  /// Between writes of steps only, up to a fifth more. Also the average of all writes but those for an
  /// attempt, a failure, the end and the checkpoint of a stop.
  Time interval{10'000};
  Time gap{2'000};  ///< between any two writes
  int ahead = 6;    ///< checkpoints that may be written at once before that average holds
};

class StatusBook {
 public:
  explicit StatusBook(int world_size, StatusPace pace = {})
      : status_(world_size, nullptr), pace_(pace) {}

  /// Takes one report. `wall`: RFC 3339.
  void take(const report::Report& report, const std::string& wall);
  /// A stop was asked for: the next checkpoint is the step at which the job stops, unless it says
  /// that it is not the attempt's last.
  void stopping() { stopping_ = true; }

  /// When to write next; nullopt: everything is stored. `random` in [0, 1).
  std::optional<Time> due(double random) const;
  /// Rises with each report; identifies what a write held.
  int64_t version() const { return version_; }
  /// True: what must be stored is stored.
  bool settled() const { return stored_ >= must_; }

  /// What changes with each write. The resolved ds_config is not in it: many times as long, and the same
  /// for the whole attempt, it is written once, as the fields of another manager.
  struct Document {
    int64_t attempt = 0;
    nlohmann::json training, checkpoint;
  };
  Document document() const;
  /// The resolved ds_config if it is not in the status yet, else null; then resolved_stored(). One that is larger than
  /// kResolvedBytesMax is left out but for a sentence.
  const nlohmann::json& resolved() const;
  void resolved_stored() { resolved_told_ = resolved_; }

  /// What an earlier life of this agent left in the job's status, read before this life's first
  /// write succeeded. Where this life has no value the old one stays, except momentary fields.
  void inherit(const nlohmann::json& current);

  void began(Time now) { last_write_ = now; }
  void stored(int64_t version);
  /// A write failed: no other before `wait` is over.
  void failed(Time now, Time wait) { not_before_ = now + wait; }
  /// True: this life has stored nothing yet.
  bool first() const { return stored_ == 0; }

 private:
  report::TrainingStatus status_;
  std::optional<report::FailureRecord> last_failure_;
  std::optional<int64_t> stop_step_;
  nlohmann::json earlier_training_ = nlohmann::json::object();
  nlohmann::json earlier_checkpoint_ = nlohmann::json::object();
  StatusPace pace_;
  nlohmann::json resolved_, resolved_told_;  ///< null: none
  /// Up to `urgent_` it must be written at once, up to `must_` before the agent ends.
  int64_t version_ = 0, must_ = 0, urgent_ = 0, stored_ = 0;
  std::optional<Time> last_write_;
  Time paid_until_{0};  ///< one `interval` after another for each write
  Time not_before_{0};
  bool stopping_ = false;
};

/// The fields of the resolved ds_config, to apply over `current` like status_body().
nlohmann::json resolved_body(const nlohmann::json& resolved, const nlohmann::json& current);

/// The object to apply over `current` as it was read: exactly our fields, the uid, and the version
/// that was read, so that a write in between is a conflict. nullopt: `current` shows a newer
/// attempt than the document; this agent is obsolete and must not write. `first`: the document may
/// have no attempt yet.
std::optional<nlohmann::json> status_body(const StatusBook::Document& document,
                                          const nlohmann::json& current, bool first);

}  // namespace dsj::agent

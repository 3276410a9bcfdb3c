// What agent 0 writes into its job's status (status.training, status.checkpoint), and when. Pure;
// status_publisher.h carries it out. It is one document and the latest wins: a write that succeeds
// holds everything reported before it, so leaving writes out loses nothing. What must be stored
// (attempt, checkpoint, failure, end) is tried again until it is.
#pragma once

#include <optional>

#include "agent/gang/messages.h"
#include "job/report/training_status.h"

namespace dsj::agent {

struct StatusPace {
  Time interval{10'000};  ///< between writes of steps only, spread by a fifth
  Time gap{2'000};        ///< between any two writes
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

  struct Document {
    int64_t attempt = 0;
    nlohmann::json training, checkpoint;
  };
  Document document() const;

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
  int64_t version_ = 0, must_ = 0, stored_ = 0;
  std::optional<Time> last_write_;
  Time not_before_{0};
  bool stopping_ = false;
};

/// The object to apply over `current` as it was read: exactly our fields, the uid, and the version
/// that was read, so that a write in between is a conflict. nullopt: `current` shows a newer
/// attempt than the document; this agent is obsolete and must not write. `first`: the document may
/// have no attempt yet.
std::optional<nlohmann::json> status_body(const StatusBook::Document& document,
                                          const nlohmann::json& current, bool first);

}  // namespace dsj::agent

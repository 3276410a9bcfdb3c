// What agent 0 writes into its job's status, and when: status.training and status.checkpoint. Pure;
// status_publisher.h carries it out. One document, the latest wins: a write that went through holds
// everything told before it, so nothing is lost by leaving writes out, and what must be stored
// (attempt, checkpoint, failure, end) is stored by trying again.
#pragma once

#include <optional>

#include "agent/messages.h"
#include "agent/training_status.h"

namespace dsj::agent {

struct StatusPace {
  Time interval{10'000};  ///< between writes of mere steps, spread by a fifth
  Time gap{2'000};        ///< between any two writes
};

class StatusBook {
 public:
  explicit StatusBook(int world_size, StatusPace pace = {})
      : status_(world_size, nullptr), pace_(pace) {}

  /// One report (reports.h); `wall` as RFC 3339.
  void take(const nlohmann::json& report, const std::string& wall);
  /// A stop was asked for: the next checkpoint is the step at which the job stops.
  void stopping() { stopping_ = true; }

  /// When to write next; nothing while all is stored. `random` in [0, 1).
  std::optional<Time> due(double random) const;
  /// Counts what is told; goes with each write.
  int64_t version() const { return version_; }
  /// What must be stored is.
  bool settled() const { return stored_ >= must_; }

  struct Document {
    int64_t attempt = 0;
    nlohmann::json training, checkpoint;
  };
  Document document() const;

  /// What an earlier life of this agent left in the job's status, as read before this one's first
  /// write went through: what this life has no value for stays (but for fields of a moment).
  void inherit(const nlohmann::json& current);

  void began(Time now) { last_write_ = now; }
  void stored(int64_t version);
  /// Not before `wait` is over.
  void failed(Time now, Time wait) { not_before_ = now + wait; }
  /// Nothing was ever stored by this life.
  bool first() const { return stored_ == 0; }

 private:
  TrainingStatus status_;
  nlohmann::json last_failure_, stop_step_;
  nlohmann::json earlier_training_ = nlohmann::json::object();
  nlohmann::json earlier_checkpoint_ = nlohmann::json::object();
  StatusPace pace_;
  int64_t version_ = 0, must_ = 0, stored_ = 0;
  std::optional<Time> last_write_;
  Time not_before_{0};
  bool stopping_ = false;
};

/// The object to apply over `current` as it was read: exactly our fields, the uid, and the version
/// that was read, so that a write in between is a conflict. Nothing: `current` shows a newer
/// attempt than the document's; this agent is of the past and must not write. `first`: the document
/// may be of no attempt yet.
std::optional<nlohmann::json> status_body(const StatusBook::Document& document,
                                          const nlohmann::json& current, bool first);

}  // namespace dsj::agent

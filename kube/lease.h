// Leader election on a coordination.k8s.io Lease: the decision (Election, pure) and its thread
// (LeaseThread), separate from all other work, so that a long reconcile never loses the lease.
// Clocks of different machines are never compared: a holder counts as dead if its record has not
// changed for the lease's duration by the local clock.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "kube/client.h"

namespace dsj::kube {

struct LeaseOptions {
  std::string ns, name;
  std::string identity;           ///< unique to this process
  Milliseconds duration{15'000};  ///< a record that has not changed for this long is free
  Milliseconds renew{10'000};     ///< a leader without a renewal for this long stops leading
  Milliseconds retry{2'000};      ///< between attempts
};

/// The result of reading the lease.
struct LeaseRecord {
  std::string holder;       ///< empty: released
  int64_t transitions = 0;  ///< leaderTransitions
  std::string renew_time;   ///< only checked for changes
  std::string acquire_time;
  std::string resource_version;  ///< for the write
};

std::optional<LeaseRecord> lease_record(const Json& lease);

class Election {
 public:
  explicit Election(LeaseOptions options) : options_(std::move(options)) {}

  enum class Move { Create, Take, Renew, Wait };
  /// `record` is nullopt if there is no lease.
  Move decide(const std::optional<LeaseRecord>& record, Milliseconds now);
  /// Call after the write that decide() requested. `asked_at`: the time before it was sent.
  void wrote(Milliseconds asked_at);
  /// Whether this process leads at `now`: its last write is more recent than `renew`.
  bool leads(Milliseconds now) const;
  /// The object to write for a move. `wall`: RFC 3339 with microseconds.
  Json object(Move move, const std::optional<LeaseRecord>& record, const std::string& wall) const;
  /// The object that releases the lease; nullopt if this process does not hold it.
  std::optional<Json> released(const std::optional<LeaseRecord>& record,
                               const std::string& wall) const;

 private:
  const LeaseOptions options_;
  std::optional<Milliseconds> renewed_at_;  ///< time of our last write
  std::string seen_holder_, seen_renew_time_;
  Milliseconds seen_at_{0};  ///< when the record last changed, by the local clock
};

/// "2026-01-31T12:00:00.000000Z".
std::string micro_time(std::chrono::system_clock::time_point time);

class LeaseThread {
 public:
  struct Hooks {
    /// true: this process begins to lead. false: it has stopped leading, perhaps some time ago:
    /// call leads() before each write.
    std::function<void(bool)> on_change;
    /// The lease could not be read or written.
    std::function<void(const ApiError&)> on_failure = nullptr;
  };
  /// Calls the hooks on the lease's thread. A hanging request is abandoned long before `renew`.
  LeaseThread(Transport& transport, Clock& clock, LeaseOptions options, Hooks hooks);
  /// Stops. A leader releases the lease, so that a standby need not wait for its expiry.
  ~LeaseThread();
  /// Decided by the clock, even while a request hangs.
  bool leads() const;
  /// Time since the lease was last read and, if necessary, written successfully, by any holder.
  Milliseconds silence() const;

 private:
  void run();
  std::optional<ApiError> attempt();
  void set(bool leading);
  ApiResult<std::optional<LeaseRecord>> read();
  void release();

  Clock& clock_;
  const LeaseOptions options_;
  Client client_;
  const Hooks hooks_;
  Election election_;
  mutable std::mutex mutex_;
  bool leading_ = false;
  Milliseconds went_well_at_;
  Cancel cancel_;
  std::thread thread_;
};

}  // namespace dsj::kube

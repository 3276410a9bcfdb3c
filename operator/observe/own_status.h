// The operator's part of a job's status as a struct: every field but `training` and `checkpoint`,
// which agent 0 owns.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "job/report/status.h"
#include "job/worker_job.h"
#include "operator/observe/conditions.h"
#include "operator/observe/elastic_size.h"
#include "operator/observe/times.h"
#include "operator/observe/unhealthy_nodes.h"

namespace dsj::op {

inline constexpr size_t kHistoryMax = 10;
/// The longest message of another component that the status repeats.
inline constexpr size_t kSentenceBytesMax = 1000;
/// The API server limits the length of names and condition types itself.
inline constexpr size_t kNameBytesMax = 316;
/// The longest message of a condition: a refusal has up to 20 findings.
inline constexpr size_t kMessageBytesMax = 4000;
/// Size of the operator's part of the status as JSON. Agent 0's part has the rest of 32 KiB.
inline constexpr size_t kOwnStatusBytesMax = 20'000;
/// A larger pod number in a status is not trusted. No job creates so many pods (pod_pace.h).
inline constexpr int64_t kPodNumberMax = 1'000'000'000;

/// Fields that apply() fills in once it has made the key (render/keys.h).
inline constexpr char kKeyRun[] = "keyRun", kKeyUid[] = "keyUid";

struct Restarts {
  int64_t total = 0;        ///< restarts of the ranks, for any reason
  int64_t counted = 0;      ///< charged to the budget since the newest checkpoint
  int64_t limit = 0;        ///< backoffLimit
  int64_t saved_step = -1;  ///< newest checkpoint at the last charge; -1 if none
  /// Consecutive restarts that were not charged, less than ten minutes apart and without a newer
  /// checkpoint.
  int64_t uncounted = 0;
  /// The newest attempt whose end was counted. Each end counts once, no matter who reports it
  /// first.
  std::optional<int64_t> attempt;
  std::optional<Time> last, not_before;  ///< no pod is made before `not_before`
};

struct OwnStatus {
  int64_t observed_generation = 0;
  std::string phase;
  std::string reason;  ///< one word that explains the phase; empty if it needs none
  Conditions conditions;
  std::optional<Time> start, completion;
  std::optional<Time> stop_since;  ///< when agent 0 was asked to stop
  /// Since when some workers hold nodes and wait for others that do not run.
  std::optional<Time> incomplete;
  std::string revision, config_map;
  /// The DeepSpeedJobTemplate that the revision was made with; empty if none.
  std::string template_name;
  int64_t template_generation = 0;
  /// Hash of the accepted spec, if defaults of a newer CRD made it differ from `revision`.
  std::string spec_hash;
  /// The highest pod number known to have existed. The next new pod gets a higher number. A value
  /// above kPodNumberMax counts as missing.
  int64_t incarnation = 0;
  /// The run whose key's Secret may exist (render/keys.h); 0 if none.
  int64_t key_run = 0;
  std::string key_uid;  ///< of that Secret; empty if not known
  /// The newest attempt that an agent reported as Completed while other workers had not ended yet.
  int64_t completed = 0;
  std::optional<Time> completed_since;  ///< start of the time that the other workers have to end
  /// Taken by agent 0 from the spec in force while it runs. Neither is in job.json or in the
  /// revision.
  int64_t save_timeout_seconds = 0, step_timeout_seconds = 0;
  int64_t world_size = 0;
  int zero_stage = 0;
  int64_t replicas = 0;
  std::string selector, workers;
  Restarts restarts;
  std::optional<ElasticState> elastic;  ///< of an elastic job
  std::vector<UnhealthyNode> unhealthy;
  /// The newest attempt for which an event reported that damaged checkpoints were skipped.
  int64_t damage_told = 0;
  nlohmann::json last_failure, failure_history = nlohmann::json::array();
};

nlohmann::json to_json(const OwnStatus& status);
/// A field that cannot be read counts as missing. Texts are cut and numbers bounded, because others
/// can write the status.
OwnStatus own_status_from_json(const nlohmann::json& object);
/// Cuts explanatory texts, the oldest first, until to_json() is no longer than kOwnStatusBytesMax.
void keep_small(OwnStatus& status);
/// Reads and cuts a failure, which others can write. nullopt if it is not an object.
std::optional<report::FailureRecord> failure_record(const nlohmann::json& object);
/// Bounds a count, a step or an attempt number so that sums do not overflow.
int64_t counted(int64_t number);
/// The operator's fields of a whole status.
nlohmann::json own_part(const nlohmann::json& status);

}  // namespace dsj::op

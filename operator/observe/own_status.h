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
/// The longest sentence of somebody else that the status repeats.
inline constexpr size_t kSentenceBytesMax = 1000;
/// The API bounds names and conditions' types by itself.
inline constexpr size_t kNameBytesMax = 316;
/// The longest condition's message: a refusal has up to 20 findings.
inline constexpr size_t kMessageBytesMax = 4000;
/// Of the whole part of the operator, as JSON. Agent 0's has the rest of 32 KiB.
inline constexpr size_t kOwnStatusBytesMax = 20'000;
/// The highest number of a pod that a status is believed. No job makes so many (pod_pace.h).
inline constexpr int64_t kPodNumberMax = 1'000'000'000;
/// Keys of a job's ConfigMap beside contract.h's.
inline constexpr char kSpecKey[] = "spec.json";
inline constexpr const char* kConfigKey = kDsConfigKey;
inline constexpr char kTemplateKey[] = "template.json";

struct Restarts {
  int64_t total = 0;        ///< restarts of the ranks, for whatever reason
  int64_t counted = 0;      ///< charged to the budget since the newest checkpoint
  int64_t limit = 0;        ///< backoffLimit
  int64_t saved_step = -1;  ///< newest checkpoint at the last charge; -1: none
  /// Restarts in a row that are not charged, without a newer checkpoint and less than ten minutes apart.
  int64_t uncounted = 0;
  /// The newest attempt whose end is accounted for. Each end counts once, whoever tells it first.
  std::optional<int64_t> attempt;
  std::optional<Time> last, not_before;  ///< no pod is made before `not_before`
};

struct OwnStatus {
  int64_t observed_generation = 0;
  std::string phase;
  std::string reason;  ///< why the phase is what it is, in one word; empty: nothing to tell
  Conditions conditions;
  std::optional<Time> start, completion;
  std::optional<Time> stop_since;  ///< when agent 0 was asked to stop
  /// Since when some workers hold nodes and wait for others that do not run.
  std::optional<Time> incomplete;
  std::string revision, config_map;
  /// The DeepSpeedJobTemplate that the revision was made with; empty: none.
  std::string template_name;
  int64_t template_generation = 0;
  /// What the accepted spec hashes to, if defaults of a newer CRD made that differ from `revision`.
  std::string spec_hash;
  /// The highest pod number known to have existed. The next pod of a worker without one is above
  /// it. Above kPodNumberMax it counts as missing.
  int64_t incarnation = 0;
  /// The newest attempt of which an agent said Completed, while other workers were still to be heard.
  int64_t completed = 0;
  std::optional<Time> completed_since;  ///< since when the others have had time to end
  /// What agent 0 takes from the spec in force while it runs: neither is in job.json nor in the revision.
  int64_t save_timeout_seconds = 0, step_timeout_seconds = 0;
  int64_t world_size = 0;
  int zero_stage = 0;
  int64_t replicas = 0;
  std::string selector, workers;
  Restarts restarts;
  std::optional<ElasticState> elastic;  ///< of an elastic job
  std::vector<UnhealthyNode> unhealthy;
  /// The newest attempt of which an event told that it passed over damaged checkpoints.
  int64_t damage_told = 0;
  nlohmann::json last_failure, failure_history = nlohmann::json::array();
};

nlohmann::json to_json(const OwnStatus& status);
/// A field that cannot be read counts as missing. Texts are cut and numbers bounded: anybody may have written it.
OwnStatus own_status_from_json(const nlohmann::json& object);
/// Shortens what explains, the oldest first, until to_json() is no longer than kOwnStatusBytesMax. What is short
/// enough stays as it is.
void keep_small(OwnStatus& status);
/// A failure that anybody may have written, cut. nullopt: it is no object.
std::optional<report::FailureRecord> failure_record(const nlohmann::json& object);
/// A count, a step or a number of an attempt, kept from where sums overflow.
int64_t counted(int64_t number);
/// The operator's fields out of a whole status.
nlohmann::json own_part(const nlohmann::json& status);

}  // namespace dsj::op

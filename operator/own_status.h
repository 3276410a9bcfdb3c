// The operator's part of a job's status as a struct: every field but `training` and `checkpoint`,
// which agent 0 owns.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "job/worker_job.h"
#include "operator/conditions.h"
#include "operator/elastic_size.h"
#include "operator/times.h"
#include "operator/unhealthy_nodes.h"

namespace dsj::op {

inline constexpr size_t kHistoryMax = 10;
/// Keys of a job's ConfigMap beside contract.h's.
inline constexpr char kSpecKey[] = "spec.json";
inline constexpr const char* kConfigKey = kDsConfigKey;
inline constexpr char kTemplateKey[] = "template.json";

struct Restarts {
  int64_t total = 0;        ///< restarts of the ranks, for whatever reason
  int64_t counted = 0;      ///< charged to the budget since the newest checkpoint
  int64_t limit = 0;        ///< backoffLimit
  int64_t saved_step = -1;  ///< newest checkpoint at the last charge; -1: none
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
  /// it.
  int64_t incarnation = 0;
  /// The newest attempt of which an agent said Completed, while other workers were still to be heard.
  int64_t completed = 0;
  std::optional<Time> completed_since;  ///< since when the others have had time to end
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
/// A field that cannot be read counts as missing.
OwnStatus own_status_from_json(const nlohmann::json& object);
/// The operator's fields out of a whole status.
nlohmann::json own_part(const nlohmann::json& status);

}  // namespace dsj::op

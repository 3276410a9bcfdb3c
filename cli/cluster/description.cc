#include "cli/cluster/description.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "cli/cluster/queue_place.h"
#include "cli/cluster/table.h"
#include "job/report/status.h"
#include "job/spec/cluster_spec.h"
#include "job/spec/job.h"
#include "job/worker_job.h"

namespace dsj::cli {
namespace {

constexpr int64_t kPodsListed = 64;

/// "  | " before every line.
std::string quoted(const std::string& text) {
  std::istringstream lines(text);
  std::string result, line;
  while (std::getline(lines, line)) result += "      | " + line + "\n";
  return result;
}

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

class Page {
 public:
  Page(const Description& what, int64_t now) : what_(what), job_(what.job), now_(now) {}

  std::string text() {
    facts();
    config();
    section("Conditions", conditions());
    section("Topology", topology_text(job_, what_.pods));
    if (const std::string unfit = unhealthy_nodes(); !unfit.empty())
      section("Avoided nodes", unfit);
    section("Failures", failures());
    section("Events", events_text(what_.events, now_));
    return text_;
  }

 private:
  void section(const char* title, const std::string& body) {
    text_ += "\n" + std::string(title) + ":" + (body.empty() ? " none\n" : "\n" + body);
  }
  std::string get(const char* path) const { return word(job_, path); }

  void facts() {
    Rows rows;
    const auto add = [&](const char* name, const std::string& value) {
      if (!value.empty()) rows.push_back({std::string(name) + ":", value});
    };
    add("Name", get("metadata.name"));
    add("Namespace", get("metadata.namespace"));
    add("State", state());
    add("Queue", what_.queue);
    add("Age", age_text(get("metadata.creationTimestamp"), now_));
    add("Model", get("spec.training.modelNameOrPath"));
    add("Data", get("spec.training.dataPath"));
    add("Model from", get("spec.initializers.model.storageUri"));
    add("Data from", get("spec.initializers.dataset.storageUri"));
    add("Fetching", fetching());
    add("Output", get("spec.training.outputDir"));
    add("Workers", workers());
    add("Template", worker_template());
    add("Step", step());
    add("Checkpoint", checkpoint());
    add("Restored", restored());
    add("Damaged", damaged());
    add("Model saved", get("status.training.modelPath"));
    add("Restarts", restarts());
    text_ += columns_text(rows);
  }

  std::string state() const {
    const std::string other =
        jobspec::other_controller(find(job_, "spec") ? *find(job_, "spec") : Json());
    const std::string standing = own_state();
    if (other.empty()) return standing;
    return (get("status.phase").empty() ? "" : standing + ", ") + "run by " + other +
           " (spec.managedBy): the operator of this cluster ignores it";
  }

  std::string own_state() const {
    const std::string phase = get("status.phase"), reason = get("status.reason");
    if (phase.empty()) return "not taken up by an operator";
    return reason.empty() ? phase : phase + ", " + reason;
  }

  std::string fetching() const {
    for (const Json& one : items(job_, "status.conditions"))
      if (word(one, "type") == "DataReady" && word(one, "status") == "False")
        return word(one, "message");
    return "";
  }

  std::string worker_template() const {
    const std::string name = get("status.template.name");
    return name.empty() ? "" : name + ", generation " + get("status.template.generation");
  }

  std::string workers() const {
    return get("status.workers") + " run, " +
           std::to_string(whole(job_, "spec.workers.replicas", 1)) + " x " +
           std::to_string(whole(job_, "spec.workers.slotsPerWorker", 1)) + " ranks" +
           (get("status.zeroStage").empty() ? "" : ", ZeRO " + get("status.zeroStage"));
  }

  std::string step() const {
    const Json* training = find(job_, "status.training");
    const std::string step = training ? word(*training, "step") : "";
    return step.empty() ? "" : step + described<report::Training>(*training);
  }

  std::string checkpoint() const {
    const Json* saved = find(job_, "status.checkpoint.lastSaved");
    const std::string step = saved ? word(*saved, "step") : "";
    return step.empty() ? "none" : "step " + step + described<report::Saved>(*saved);
  }

  std::string restored() const {
    const Json* restored = find(job_, "status.checkpoint.lastRestored");
    const std::string step = restored ? word(*restored, "step") : "";
    return step.empty() ? "" : "step " + step + described<report::Restored>(*restored);
  }

  std::string damaged() const {
    const Json* damaged = find(job_, "status.checkpoint.lastDamaged");
    const std::string step = damaged ? word(*damaged, "step") : "";
    return step.empty() ? "" : "step " + step + one_line(described<report::Damaged>(*damaged));
  }

  /// The fields of a status object that the tables of job/report list for `dsj describe`.
  template <typename T>
  std::string described(const Json& object) const {
    std::string text;
    report::for_each_status_field<T>([&](const auto& field, const char* name) {
      const std::string value = field.before ? word(object, name) : "";
      if (value.empty()) return;
      text += field.before + (field.unit == report::Unit::Time ? age_text(value, now_) : value) +
              report::suffix(field.unit) + field.after;
    });
    return text;
  }

  std::string restarts() const {
    return std::to_string(whole(job_, "status.restarts.total")) + "; " +
           std::to_string(whole(job_, "status.restarts.counted")) + " of " +
           std::to_string(whole(job_, "spec.backoffLimit", 3)) +
           " counted since the newest checkpoint";
  }

  void config() {
    if (!find(job_, "spec.deepspeed")) {
      text_ += "\nds_config: none, the program is the job's own (launcher Command)\n";
      return;
    }
    const std::string map = get("spec.deepspeed.configFrom.configMapKeyRef.name");
    std::string from = map.empty() ? "in the job"
                                   : "key " + get("spec.deepspeed.configFrom.configMapKeyRef.key") +
                                         " of ConfigMap " + map;
    if (const std::string kept = get("status.configMapName"); !kept.empty())
      from += ", as accepted in ConfigMap " + kept;
    text_ += "\nds_config: " + from + "\n";
    if (!what_.config_problem.empty())
      text_ += "  not resolved here: " + what_.config_problem + "\n";
    Rows rows;
    for (const auto& origin : what_.origins)
      rows.push_back({"  " + origin.path, origin.value, origin.from});
    text_ += columns_text(rows);
  }

  std::string conditions() const {
    Rows rows;
    for (const Json& one : items(job_, "status.conditions"))
      rows.push_back({"  " + word(one, "type"), word(one, "status"), word(one, "reason"),
                      age_text(word(one, "lastTransitionTime"), now_),
                      one_line(word(one, "message"))});
    if (!rows.empty())
      rows.insert(rows.begin(), {"  TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"});
    return columns_text(rows);
  }

  std::string unhealthy_nodes() const {
    std::string text;
    for (const Json& one : items(job_, "status.unhealthyNodes"))
      text += "  " + word(one, "node") + ", " + age_text(word(one, "time"), now_) +
              " ago: " + one_line(word(one, "message")) + "\n";
    return text;
  }

  std::string failures() const {
    std::string text;
    for (const Json& one : items(job_, "status.failureHistory")) {
      const std::string line = "  " + word(one, "time") + " " + word(one, "reason") +
                               described<report::FailureRecord>(one);
      text +=
          line + "\n    " + one_line(word(one, "message")) + "\n" + quoted(word(one, "lastWords"));
    }
    return text;
  }

  const Description& what_;
  const Json& job_;
  const int64_t now_;
  std::string text_;
};

/// Resolves the config as the operator does. If it cannot, sets `config_problem`.
void resolve_config(Session& session, Description& what) {
  auto job = jobspec::read_cluster_manifest(what.job);
  if (!job) {
    what.config_problem = job.error().to_string();
    return;
  }
  if (!job->has_ds_config()) return;
  if (job->ds_config_map) {
    const std::string kept = word(what.job, "status.configMapName");
    const std::string name = kept.empty() ? job->ds_config_map->name : kept;
    const std::string key = kept.empty() ? job->ds_config_map->key : kDsConfigKey;
    const auto map = session.client.get(kube::resources::config_maps(), session.ns, name);
    const Json* data = map ? find(*map, "data") : nullptr;
    if (!data || !data->contains(key)) {
      what.config_problem = map ? "ConfigMap " + name + " has no key " + key
                                : "ConfigMap " + name + ": " + map.error().to_string();
      return;
    }
    const auto set =
        jobspec::set_ds_config(*job, (*data)[key].get<std::string>(), name + "/" + key);
    if (!set) {
      what.config_problem = set.error().to_string();
      return;
    }
  }
  const auto resolution = jobspec::resolve(*job, {});
  for (const auto& finding : resolution.findings) {
    if (finding.severity != dsconfig::Finding::Severity::Error) continue;
    what.config_problem = finding.path + ": " + finding.message;
    return;
  }
  what.origins = resolution.origins;
}

}  // namespace

std::string to_text(const Description& what, int64_t now) {
  return Page(what, now).text();
}

std::string events_text(const std::vector<Json>& events, int64_t now) {
  std::vector<const Json*> sorted;
  for (const Json& event : events) sorted.push_back(&event);
  const auto time_of = [](const Json* event) {
    for (const char* path : {"series.lastObservedTime", "eventTime", "deprecatedLastTimestamp",
                             "metadata.creationTimestamp"})
      if (const std::string time = word(*event, path); !time.empty()) return time;
    return std::string();
  };
  std::ranges::stable_sort(sorted, {}, time_of);
  Rows rows;
  for (const Json* event : sorted)
    rows.push_back({"  " + age_text(time_of(event), now), word(*event, "type"),
                    word(*event, "reason"),
                    word(*event, "regarding.kind") + " " + word(*event, "regarding.name"),
                    one_line(word(*event, "note"))});
  if (!rows.empty()) rows.insert(rows.begin(), {"  AGE", "TYPE", "REASON", "OBJECT", "MESSAGE"});
  return columns_text(rows);
}

std::string topology_text(const Json& job, const std::vector<PodRef>& pods) {
  const int64_t slots = whole(job, "spec.workers.slotsPerWorker", 1);
  Rows rows;
  std::set<int64_t> workers;
  for (const PodRef& pod : pods) workers.insert(pod.worker);
  int64_t left_out = 0;
  for (const PodRef& pod : pods) {
    const std::string phase = word(pod.object, "status.phase");
    if (std::ssize(rows) >= kPodsListed && phase == "Running") {
      ++left_out;
      continue;
    }
    const int64_t first = pod.worker * slots, last = first + slots - 1;
    rows.push_back(
        {"  " + std::to_string(first) + (last > first ? "-" + std::to_string(last) : std::string()),
         std::to_string(pod.worker), pod.name, word(pod.object, "spec.nodeName"), phase,
         word(pod.object, "status.podIP")});
  }
  if (!rows.empty()) rows.insert(rows.begin(), {"  RANKS", "WORKER", "POD", "NODE", "PHASE", "IP"});
  std::string text = columns_text(rows);
  if (left_out > 0)
    text += "  and " + std::to_string(left_out) + " more that run: kubectl get pods -l " +
            "training.dsj.dev/job-name=" + word(job, "metadata.name") + "\n";
  const int64_t wanted =
      whole(job, "status.elastic.replicas", whole(job, "spec.workers.replicas", 1));
  const int64_t missing = wanted - std::ssize(workers);
  if (!pods.empty() && missing > 0)
    text +=
        "  " + std::to_string(missing) + " of " + std::to_string(wanted) + " workers have no pod\n";
  return text;
}

Json to_json(const Description& what) {
  Json pods = Json::array(), origins = Json::array();
  for (const PodRef& pod : what.pods) pods.push_back(pod.object);
  for (const auto& origin : what.origins)
    origins.push_back({{"path", origin.path}, {"value", origin.value}, {"origin", origin.from}});
  Json all = {
      {"job", what.job}, {"pods", pods}, {"events", what.events}, {"configOrigins", origins}};
  if (!what.config_problem.empty()) all["configProblem"] = what.config_problem;
  if (!what.queue.empty()) all["queue"] = what.queue;
  return all;
}

kube::ApiResult<Description> look_at_job(Session& session, const std::string& name) {
  Description what;
  auto job = session.client.get(jobs_resource(), session.ns, name);
  if (!job) return std::unexpected(job.error());
  what.job = std::move(*job);
  auto pods = pods_of(session, name);
  if (!pods) return std::unexpected(pods.error());
  what.pods = std::move(*pods);
  const kube::ListOptions select{.field_selector =
                                     "regarding.kind=DeepSpeedJob,regarding.name=" + name};
  (void)session.client.list(kube::resources::events(), session.ns, select,
                            [&](const Json& event) { what.events.push_back(event); });
  resolve_config(session, what);
  what.queue = queue_place(session, what.job, what.pods);
  return what;
}

}  // namespace dsj::cli

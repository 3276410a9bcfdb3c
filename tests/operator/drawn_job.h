// A job of which everything is drawn from bytes: its spec, what anybody wrote into its status, its pods, nodes and the
// time. Each step changes something and makes one pass, carried out. A promise that a pass breaks is a failure of
// GoogleTest, or an exception.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "common/text.h"
#include "kube/client.h"
#include "operator/observe/kueue.h"
#include "tests/kube/fake_clock.h"
#include "tests/operator/kstatus.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {

/// Choices out of bytes. When they are used up everything is the first choice.
class Draw {
 public:
  Draw(const uint8_t* data, size_t size) : data_(data), end_(data + size) {}
  bool empty() const { return data_ == end_; }
  int below(int count) { return count > 0 ? byte() % count : 0; }
  bool happens(int of_256) { return 255 - byte() < of_256; }
  template <size_t N, typename T>
  const T& one_of(const T (&choices)[N]) {
    return choices[below(static_cast<int>(N))];
  }

  int64_t number() {
    static constexpr int64_t kOdd[] = {0,
                                       -1,
                                       86,
                                       87,
                                       88,
                                       137,
                                       1'000'000,
                                       (int64_t{1} << 31) - 1,
                                       int64_t{1} << 31,
                                       900'000'000'000'000,
                                       INT64_MAX,
                                       INT64_MIN};
    return happens(200) ? below(6) : one_of(kOdd);
  }
  std::string text() {
    static constexpr const char* kWords[] = {"Killed",
                                             "Completed",
                                             "Preempted",
                                             "InitializerFailed",
                                             "NodeLost",
                                             "PodDeleted",
                                             "GangReleased",
                                             "Evicted",
                                             "UnhealthyNode",
                                             "PeerLost",
                                             "Error",
                                             "OutOfcpu",
                                             "OOMKilled",
                                             "BackoffLimitExceeded",
                                             "",
                                             "WorkerLost",
                                             "OutOfnvidia.com/gpu",
                                             "two words",
                                             "UnexpectedAdmissionError",
                                             "True",
                                             "2026-01-01T00:00:00Z",
                                             "9999-12-31T23:59:59Z",
                                             "\xe2\x82\xac",
                                             "node-1",
                                             "NotRestarting",
                                             "SpecChanged",
                                             "HangDetected",
                                             "NodeAffinity"};
    const std::string word = one_of(kWords);
    if (!happens(12)) return word;
    static constexpr size_t kSizes[] = {20, 99, 101, 317, 999, 1001, 4001, 40'000};
    std::string many;
    const size_t size = one_of(kSizes);
    while (many.size() < size) many += word.empty() ? "x" : word;
    return many;
  }
  /// Of any type.
  Json odd() {
    switch (below(8)) {
      case 0:
        return nullptr;
      case 1:
        return number();
      case 2:
        return text();
      case 3:
        return Json::array({text(), number()});
      case 4:
        return Json::object({{"name", text()}, {"attempt", number()}});
      case 5:
        return 1.5e300;
      case 6:
        return true;
      default:
        return Json::array({Json::object()});
    }
  }

 private:
  int byte() { return data_ == end_ ? 0 : *data_++; }
  const uint8_t* data_;
  const uint8_t* end_;
};

/// An API server that carries nothing out, and answers as it likes.
class DrawnServer final : public kube::Transport {
 public:
  explicit DrawnServer(Draw& draw) : draw_(draw) {}
  std::expected<kube::Response, kube::NetError> call(const kube::Request& request,
                                                     const kube::Cancel&) override {
    if (draw_.happens(10))
      return std::unexpected(kube::NetError{kube::NetError::Kind::Cut, draw_.text()});
    static constexpr int kCodes[] = {403, 404, 409, 422, 429, 500, 503, 400, 410, 200};
    if (draw_.happens(60))
      return kube::Response{
          draw_.one_of(kCodes),
          {},
          Json({{"reason", draw_.text()}, {"message", draw_.text()}, {"details", draw_.odd()}})
              .dump()};
    if (draw_.happens(10)) return kube::Response{200, {}, draw_.odd().dump()};
    Json object = Json::parse(request.body, nullptr, false);
    if (!object.is_object()) object = Json::object();
    if (!object.contains("metadata")) object["metadata"] = {{"name", "x"}, {"namespace", "n"}};
    object["metadata"]["uid"] = "uid";
    object["metadata"]["resourceVersion"] = "7";
    return kube::Response{request.method == "POST" ? 201 : 200, {}, object.dump()};
  }
  std::expected<kube::StreamResponse, kube::NetError> open(const kube::Request&,
                                                           const kube::Cancel&) override {
    return std::unexpected(kube::NetError{});
  }

 private:
  Draw& draw_;
};

/// Takes answers in as the cache does.
struct ReadWrites final : Writes {
  void wrote(const std::string& kind, const Json& object) override {
    if (kind == "Pod") (void)pod_view(object);
    if (kind == jobspec::kKind) (void)job_view(object);
    (void)child_view(object);
    (void)content_of(kind, object);
  }
};

class DrawnJob : public World {
 public:
  explicit DrawnJob(Draw& draw) : World(quick_spec(1 + draw.below(3))), draw_(draw) {
    o.settings.volcano = o.settings.kueue = true;
    edit_spec();
  }

  int64_t passes = 0;

  /// Until the bytes are used up, or after so many steps.
  void live(int steps) {
    for (int i = 0; i < steps && !draw_.empty() && o.job; ++i) {
      for (int changes = 1 + draw_.below(3); changes > 0; --changes) change();
      watched_pass();
      if (draw_.happens(40)) rest();
    }
    if (o.job) rest();
  }

 private:
  void change() {
    static constexpr int kSeconds[] = {0, 1, 2, 5, 31, 61, 121, 700, 3601, 100'000};
    switch (draw_.below(16)) {
      case 0:
      case 1:
        now += Seconds(draw_.one_of(kSeconds));
        return;
      case 2:
        return edit_spec();
      case 3:
        return meddle();
      case 4:
      case 5:
        return agent_reports();
      case 6:
        return node_changes();
      case 7:
        o.refusal.reset();
        if (draw_.happens(100))
          o.refusal = Refusal{draw_.happens(128) ? "QuotaExceeded" : "Forbidden", draw_.text()};
        return;
      case 8:
        run_pods();
        return;
      case 9:
        reap();
        return;
      case 10:
        if (draw_.happens(10)) o.job->deleting = true;
        if (draw_.happens(3)) o.job->orphaning = true;
        return;
      default:
        return pod_changes();
    }
  }

  void edit_spec() {
    Json spec = quick_spec(1 + draw_.below(3));
    const auto put = [&](const char* pointer, Json value) {
      spec[Json::json_pointer(pointer)] = std::move(value);
    };
    switch (draw_.below(14)) {
      case 0:
        break;
      case 1:
        put("/elastic", {{"minReplicas", 1}, {"maxReplicas", 3}});
        put("/deepspeed/config/train_micro_batch_size_per_gpu", 1);
        break;
      case 2:
        spec.erase("deepspeed");
        put("/launcher", "Command");
        put("/workers/template",
            Json::parse(R"({"spec": {"containers": [{"name": "worker", "image": "i", "command":
                ["a"]}, {"name": "sidecar", "image": "s"}]}})"));
        break;
      case 3:
        put("/initializers/model", {{"storageUri", "hf://o/m"}, {"image", "hub"}});
        put("/workers/template", Json::parse(R"({"spec": {"containers": [{"name": "worker",
            "volumeMounts": [{"name": "v", "mountPath": "/m"}]}], "volumes": [{"name": "v",
            "emptyDir": {}}]}})"));
        break;
      case 4:
        put("/runPolicy/schedulingPolicy", {{"scheduler", "volcano"}, {"queue", "q"}});
        break;
      case 5:
        put("/runPolicy/schedulingPolicy", {{"scheduler", "kueue"}, {"queue", "q"}});
        break;
      case 6:
        put("/failurePolicy/rules",
            Json::parse(R"([{"action": "RestartUncounted", "onReasons": ["Killed", "NodeLost"]},
                {"action": "FailJob", "onPodConditions": ["DisruptionTarget"]},
                {"action": "Restart", "onExitCodes": {"operator": "NotIn", "values": [87]}}])"));
        break;
      case 7:
        put("/restartPolicy", "Never");
        break;
      case 8:
        put("/runPolicy", {{"activeDeadlineSeconds", 600},
                           {"startupDeadlineSeconds", 60},
                           {"ttlSecondsAfterFinished", 5},
                           {"cleanPodPolicy", draw_.happens(128) ? "All" : "None"}});
        break;
      case 9:
        put("/workers/topology", {{"key", "rack"}, {"mode", "Required"}});
        break;
      case 10:  // refused
        put("/deepspeed/config/zero_optimization/stage", 9);
        break;
      case 11:
        put("/training/maxSteps", 20);
        break;
      case 12:
        put("/backoffLimit", 100);
        break;
      default:
        put("/failurePolicy/nodeHealth", {{"action", "Report"}});
    }
    if (draw_.happens(50)) spec["suspend"] = true;
    edit_to(spec);
  }

  /// As World::edit, with verdicts that are remembered: they cost most.
  void edit_to(const Json& spec) {
    static thread_local std::map<std::string, Verdict> known;
    const auto before = o.wanted.accepted ? o.wanted.accepted : o.in_force;
    const bool kept = std::ranges::any_of(
        o.children, [&](const ChildView& child) { return child.name == status().config_map; });
    Verdict& verdict = known[spec.dump()];
    if (verdict.reason.empty())
      verdict = possible_with(judge(o.name, spec, std::nullopt, ""), true, true);
    o.job->spec = spec;
    ++o.job->generation;
    o.wanted = verdict;
    o.in_force = o.wanted.accepted || !kept ? nullptr : before;
  }

  /// Whoever may patch the status writes into it.
  void meddle() {
    Json& own = o.job->own_status;
    if (!own.is_object()) own = Json::object();
    static constexpr const char* kFields[] = {
        "restarts",         "conditions",       "failureHistory",    "lastFailure",
        "elastic",          "startTime",        "incarnation",       "keyRun",
        "revision",         "completedAttempt", "unhealthyNodes",    "phase",
        "reason",           "template",         "stopRequestedTime", "completionTime",
        "configMapName",    "specHash",         "incompleteTime",    "observedGeneration",
        "damageToldAttempt"};
    const char* field = draw_.one_of(kFields);
    if (draw_.happens(80)) {
      own[field] = draw_.odd();
    } else if (own.contains(field) && own[field].is_object() && !own[field].empty()) {
      auto at = own[field].begin();
      std::advance(at, draw_.below(static_cast<int>(own[field].size())));
      *at = draw_.odd();
    } else if (std::string(field) == "failureHistory") {
      Json list = Json::array();
      for (int i = draw_.below(14); i > 0; --i)
        list.push_back({{"reason", draw_.text()},
                        {"message", draw_.text()},
                        {"lastWords", draw_.text()},
                        {"node", draw_.text()},
                        {"attempt", draw_.odd()}});
      own[field] = list;
    } else if (std::string(field) == "unhealthyNodes") {
      Json list = Json::array();
      for (int i = draw_.below(40); i > 0; --i)
        list.push_back({{"node", "node-" + std::to_string(i) + draw_.text()},
                        {"message", draw_.text()},
                        {"time", to_text(now)},
                        {"times", draw_.number()}});
      own[field] = list;
    } else if (std::string(field) == "conditions") {
      Json list = Json::array();
      for (const char* type : {"Accepted", "Failed", "Complete", "Suspended", "Restarting", "Mine",
                               "Ready", "Reconciling", "Stalled"})
        if (draw_.happens(100))
          list.push_back({{"type", type},
                          {"status", draw_.text()},
                          {"reason", draw_.text()},
                          {"message", draw_.text()},
                          {"lastTransitionTime", draw_.text()}});
      own[field] = list;
    } else {
      own[field] = draw_.happens(128) ? Json(draw_.text()) : Json(draw_.number());
    }
    own = own_part(own);
  }

  void agent_reports() {
    Json training = {
        {"attempt", draw_.happens(220) ? Json(o.job->agent.attempt + draw_.below(3)) : draw_.odd()},
        {"lastUpdatedTime", to_text(now)}};
    Json checkpoint = Json::object();
    if (draw_.happens(60)) training["stopStep"] = draw_.number();
    if (draw_.happens(60)) training["stragglers"] = draw_.text();
    if (draw_.happens(20)) training["exportedPath"] = draw_.text();
    if (draw_.happens(20)) training["step"] = training["totalSteps"] = draw_.number();
    if (draw_.happens(90)) checkpoint["lastSaved"] = {{"step", draw_.number()}};
    if (draw_.happens(20))
      checkpoint["lastDamaged"] = {{"attempt", draw_.number()}, {"message", draw_.text()}};
    if (draw_.happens(120))
      training["lastFailure"] = {
          {"attempt", draw_.happens(200) ? Json(o.job->agent.attempt) : Json(draw_.number())},
          {"worker", draw_.number()},
          {"reason", draw_.text()},
          {"message", draw_.text()}};
    if (draw_.happens(100) && training.contains("lastFailure"))
      training["lastFailure"][draw_.happens(128) ? "rank" : "exitCode"] = draw_.odd();
    if (draw_.happens(10)) training["lastFailure"] = draw_.odd();
    if (draw_.happens(60) && training.contains("lastFailure")) {
      Json earlier = Json::array();
      for (int i = draw_.below(14); i > 0; --i) {
        earlier.push_back(training["lastFailure"]);
        if (!earlier.back().is_object() || draw_.happens(20)) earlier.back() = draw_.odd();
        if (!earlier.back().is_object()) continue;
        earlier.back()["attempt"] = o.job->agent.attempt + draw_.below(3) - i;
        if (draw_.happens(100)) earlier.back()["savedStep"] = draw_.number();
      }
      training["earlierFailures"] = draw_.happens(10) ? draw_.odd() : earlier;
    }
    const JobView told =
        job_view({{"metadata", {{"name", "j"}, {"namespace", "n"}}},
                  {"status", {{"training", training}, {"checkpoint", checkpoint}}}});
    const auto saved = o.job->agent.saved_step;
    o.job->agent = told.agent;
    if (!o.job->agent.saved_step) o.job->agent.saved_step = saved;
  }

  void node_changes() {
    const std::string name = "node-" + std::to_string(draw_.below(4));
    o.nodes[name] = {.ready = draw_.happens(128), .since = now - Seconds(draw_.below(100))};
    if (draw_.happens(40)) o.nodes.erase(name);
  }

  Json state() {
    switch (draw_.below(5)) {
      case 0:
        return {{"running", {{"startedAt", to_text(now)}}}};
      case 1:
        return {{"waiting", {{"reason", draw_.text()}, {"message", draw_.text()}}}};
      case 2:
        return draw_.odd();
      default: {
        static constexpr int kCodes[] = {0, 1, 2, 3, 86, 87, 88, 137, 143};
        const int code = draw_.one_of(kCodes);
        Json words = {{"reason", draw_.text()}, {"message", draw_.text()}};
        if (draw_.happens(200)) words["attempt"] = o.job->agent.attempt;
        if (draw_.happens(20)) words["attempt"] = draw_.odd();
        if (draw_.happens(80)) words["rank"] = draw_.odd();
        if (draw_.happens(80)) words["exitCode"] = draw_.number();
        if (draw_.happens(80)) words["step"] = draw_.number();
        if (code == 0 && draw_.happens(200)) words["reason"] = contract::kReasonCompleted;
        return {{"terminated",
                 {{"exitCode", code},
                  {"reason", draw_.text()},
                  {"message", draw_.happens(220) ? words.dump() : draw_.text()}}}};
      }
    }
  }

  /// A kubelet, a scheduler or somebody else changes a pod: the object is read as any that a watch brings.
  void pod_changes() {
    if (o.pods.empty()) return;
    PodView& pod = o.pods[static_cast<size_t>(draw_.below(static_cast<int>(o.pods.size())))];
    if (draw_.happens(15)) {
      o.pods.erase(o.pods.begin() + (&pod - o.pods.data()));
      return;
    }
    static constexpr const char* kPhases[] = {"Running", "Failed", "Succeeded", "Pending", ""};
    Json conditions = Json::array();
    if (draw_.happens(60)) conditions.push_back({{"type", "DisruptionTarget"}, {"status", "True"}});
    if (draw_.happens(60))
      conditions.push_back({{"type", "PodScheduled"},
                            {"status", draw_.happens(128) ? "True" : "False"},
                            {"reason", "Unschedulable"},
                            {"message", draw_.text()}});
    Json object = {
        {"metadata",
         {{"name", pod.name},
          {"uid", pod.uid},
          {"resourceVersion", pod.resource_version},
          {"creationTimestamp", to_text(now)},
          {"ownerReferences", Json::array({{{"apiVersion", jobspec::kApiVersion},
                                            {"kind", jobspec::kKind},
                                            {"uid", pod.owner_uid},
                                            {"controller", true}}})},
          {"annotations",
           {{contract::kAnnotationRestarts, std::to_string(pod.restarts)},
            {contract::kAnnotationAvoids, pod.avoids}}},
          {"labels",
           {{contract::kLabelReplicaIndex, std::to_string(pod.worker)},
            {contract::kLabelIncarnation, std::to_string(pod.incarnation)},
            {contract::kLabelRevision, pod.revision},
            {contract::kLabelGang, pod.gang}}}}},
        {"spec",
         {{"containers",
           Json::array({{{"name", contract::kContainerName}, {"env", env_of_key(pod)}}})}}},
        {"status",
         {{"phase", draw_.one_of(kPhases)},
          {"conditions", conditions},
          {"containerStatuses",
           Json::array({{{"name", contract::kContainerName}, {"state", state()}}})}}}};
    if (draw_.happens(10)) {
      static constexpr const char* kLabels[] = {contract::kLabelReplicaIndex,
                                                contract::kLabelIncarnation,
                                                contract::kLabelRevision, contract::kLabelGang};
      object["metadata"]["labels"][draw_.one_of(kLabels)] = draw_.odd();
    }
    if (!pod.node.empty() || draw_.happens(128))
      object["spec"]["nodeName"] =
          pod.node.empty() ? "node-" + std::to_string(draw_.below(4)) : pod.node;
    if (draw_.happens(60)) object["status"]["reason"] = draw_.text();
    if (draw_.happens(60)) object["status"]["message"] = draw_.text();
    if (draw_.happens(40)) object["metadata"]["finalizers"] = {kKueueFinalizer};
    if (draw_.happens(60))
      object["status"]["containerStatuses"].push_back({{"name", "sidecar"}, {"state", state()}});
    if (draw_.happens(60))
      object["status"]["initContainerStatuses"] =
          Json::array({{{"name", "initialize-model"}, {"state", state()}}});
    if (pod.deleting_from || draw_.happens(25))
      object["metadata"]["deletionTimestamp"] = to_text(pod.deleting_from.value_or(now));
    if (draw_.happens(10)) object["status"]["containerStatuses"] = draw_.odd();
    if (draw_.happens(10)) object["status"] = draw_.odd();
    if (auto view = pod_view(object)) pod = std::move(*view);
  }

  void promise(bool holds, const std::string& what) {
    if (holds) return;
    throw std::logic_error(what + ": " + (o.job ? o.job->own_status.dump() : "no job"));
  }

  /// What kstatus says follows from the phase and the conditions beside the three that it reads.
  void promise_readiness() {
    const auto& all = status().conditions;
    const Condition* accepted = find_condition(all, "Accepted");
    const Condition* progressing = find_condition(all, "Progressing");
    const bool refused = accepted && accepted->status == "False";
    const bool silent = progressing && progressing->status == "False";
    const std::string wanted = is_true(all, "Complete") ? "Current"
                               : is_true(all, "Failed") ? "Failed"
                               : refused                ? "Failed"
                               : phase() == "Suspended" ? "Current"
                               : phase() == "Running"   ? (silent ? "InProgress" : "Current")
                                                        : "InProgress";
    const std::string said =
        kstatus({{"metadata", {{"generation", o.job->generation}}}, {"status", o.job->own_status}});
    promise(said == wanted, "kstatus is " + said + ", wanted " + wanted);
    promise(!(is_true(all, "Reconciling") && is_true(all, "Stalled")), "Reconciling and Stalled");
    promise(is_true(all, "Ready") == (wanted == "Current"), "Ready is not what kstatus says");
  }

  Plan watched_pass() {
    ++passes;
    const bool was_over =
        o.job && o.job->own_status.is_object() &&
        (is_true(status().conditions, "Complete") || is_true(status().conditions, "Failed"));
    const Observed before = o;
    const Plan plan = pass();
    if (draw_.happens(60)) carry_out(before, plan);
    if (!plan.status.is_null()) {
      const std::string text = plan.status.dump();
      promise(text.size() <= kOwnStatusBytesMax, "a status of " + std::to_string(text.size()));
      promise(text::invalid_utf8(text) == std::string::npos, "a status that is no UTF-8");
      promise(to_json(own_status_from_json(plan.status)) == plan.status,
              "a status that is read otherwise than it was written");
      promise(own_part(plan.status) == plan.status, "a status with more than its own");
      if (before.job && o.job) promise_readiness();
    }
    std::set<std::string> names;
    for (const Create& create : plan.pods) {
      promise(names.insert(create.name).second, "two pods of one name");
      promise(create.object.dump().size() < 100'000, "a large pod");
      promise(before.job && !before.job->deleting && !before.job->orphaning && !was_over,
              "a pod of a job that is over");
    }
    promise(std::ssize(plan.pods) <= pod_burst(plan.workers), "more pods than a burst");
    for (const Delete& entry : plan.deletes) {
      promise(!entry.uid.empty() || entry.kind == "Secret", "a deletion without a uid");
      promise(!before.job || !before.job->orphaning, "a deletion of what is orphaned");
    }
    for (const Event& event : plan.events)
      promise(!event.reason.empty(), "an event without a reason");
    if (o.job && !plan.status.is_null() && is_true(status().conditions, "Complete") && !was_over)
      promise(is_true(status().conditions, "Accepted") || before.in_force,
              "a refused job Complete");
    return plan;
  }

  /// What apply makes of answers of any kind. They change nothing here.
  void carry_out(const Observed& observed, const Plan& plan) {
    DrawnServer server(draw_);
    kube::testing::FakeClock clock;
    kube::Client client(server, clock, {.attempts = 1});
    ReadWrites writes;
    NoEvents events;
    const auto issue = [](const NewKey&) -> Result<ServerCertificate> {
      return ServerCertificate{};
    };
    const Applied applied = apply(
        client, observed, plan, [] { return true; }, writes, events, 1, work_on_threads, issue);
    promise(applied.done || !applied.problem.empty(), "a failure without a word");
    promise(!applied.refusal || applied.refusal->message.size() <= 1100, "a long refusal");
  }

  /// Without any change passes come to an end.
  void rest() {
    for (int i = 0; i < 20; ++i) {
      const Plan plan = watched_pass();
      if (!o.job || (made(plan).empty() && plan.status.is_null() && plan.updates.empty())) return;
    }
    promise(false, "passes do not come to rest");
  }

  Draw& draw_;
};

}  // namespace dsj::op::testing

#include "tests/operator/sim/agents.h"

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>

#include "common/json.h"
#include "job/contract.h"
#include "job/join_keys.h"
#include "operator/act/apply.h"
#include "operator/observe/conditions.h"
#include "operator/observe/own_status.h"
#include "operator/render/keys.h"
#include "operator/render/render_config.h"

namespace dsj::op::sim {
namespace {

using kube::resources::pods;

constexpr char kNs[] = "n";

std::string env_of(const Json& pod, const char* name) {
  for (const Json& entry : pod["spec"]["containers"][0]["env"]) {
    if (entry["name"] == name) return entry["value"];
  }
  return "";
}

std::shared_ptr<X509> certificate_of(const std::string& pem) {
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> bio(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free_all);
  return {PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), X509_free};
}

bool vouches(const std::string& authority_pem, const std::string& chain_pem) {
  const auto authority = certificate_of(authority_pem), own = certificate_of(chain_pem);
  return authority && own && X509_verify(own.get(), X509_get0_pubkey(authority.get())) == 1;
}

bool avoids(const Json& pod, const std::string& node) {
  const auto at = Json::json_pointer("/spec/affinity");
  return pod.contains(at) && pod[at].dump().find("\"" + node + "\"") != std::string::npos;
}

}  // namespace

Agents::Agents(kube::testing::FakeApiServer& server, SimClock& clock, Chance& chance,
               Platform& platform, std::string job, AgentBugs bugs)
    : server_(server),
      clock_(clock),
      chance_(chance),
      platform_(platform),
      job_(std::move(job)),
      bugs_(bugs),
      client_(server, clock) {}

int Agents::living(int worker) const {
  int count = 0;
  for (const auto& [uid, container] : containers_) {
    count += container.alive && container.worker == worker;
  }
  return count;
}

/// A power failure ends a container at once; a cut network leaves it its lease.
void Agents::power() {
  for (auto& [uid, container] : containers_) {
    if (!platform_.away(container.node)) {
      container.cut_since.reset();
      continue;
    }
    if (!container.cut_since) container.cut_since = clock_.at();
    if (container.alive && clock_.at() >= *container.cut_since + kLease) {
      container.alive = false;
      container.exit_code = 137;
    }
  }
}

bool Agents::api_delete(const std::string& kind, const std::string& name, bool force) {
  kube::DeleteOptions options;
  if (force) options.grace_seconds = 0;
  return client_.remove(resource_of(kind), kNs, name, options).has_value();
}

std::shared_ptr<const Json> Agents::shown(const char* kind, const std::string& name) const {
  return server_.shown(resource_of(kind), kNs, name);
}

/// A kubelet gets a pod its token and its volumes first.
bool Agents::has_what_it_mounts(const Json& pod) const {
  return !strict || shown("ServiceAccount", json_text(pod["spec"], "serviceAccountName"));
}

/// Its Secret is there, and the pod's authority vouches for it.
bool Agents::has_key(const Container& container) const {
  const auto pod = server_.shown(pods(), kNs, container.pod);
  if (!pod) return true;
  for (const Json& volume : (*pod)["spec"]["volumes"]) {
    if (volume["name"] != kJoinKeyVolume) continue;
    const Json& source = volume["projected"]["sources"][0];
    if (!source.contains("secret")) return true;  // as the release before made it, with its keys
    const auto secret = shown("Secret", source["secret"]["name"]);
    return secret && vouches(container.authority, (*secret)["stringData"][kJoinChainFile]);
  }
  return false;
}

/// A token is of the ServiceAccount's uid.
bool Agents::may_report(const Container& container) const {
  if (!strict) return true;
  const std::string name = shared_name(job_);
  const auto account = shown("ServiceAccount", name);
  return account && (*account)["metadata"]["uid"] == container.account && shown("Role", name) &&
         shown("RoleBinding", name);
}

/// Worker 0 cannot prove itself, or nobody finds it. Without a key it gives up.
bool Agents::lacks_key() {
  for (auto& [uid, container] : containers_) {
    if (!strict || !container.alive || container.cut_since || container.worker != 0) continue;
    if (container.replicas == 1) continue;
    if (!shown("Service", shared_name(job_))) return true;
    if (has_key(container)) continue;
    if (clock_.at() < *container.began + kKeyPatience) return true;
    finish(container, kExitKeyMissing, kReasonKeyMissing, 0);
    ++keyless;
    container.words["attempt"] = 0;
    return true;
  }
  return false;
}

void Agents::start_container(const Json& pod) {
  const std::string uid = pod["metadata"]["uid"], name = pod["metadata"]["name"];
  Container container{.uid = uid,
                      .pod = name,
                      .node = pod["spec"]["nodeName"],
                      .revision = env_of(pod, contract::kEnvRevision),
                      .authority = env_of(pod, contract::kEnvJoinAuthority),
                      .worker = std::stoi(env_of(pod, contract::kEnvWorker)),
                      .incarnation = std::stoll(env_of(pod, contract::kEnvIncarnation)),
                      .alive = true};
  // The ConfigMap is mounted: without it the container does not start.
  const std::string map = pod["spec"]["volumes"][0]["configMap"]["name"];
  const auto config = client_.get(kube::resources::config_maps(), kNs, map);
  if (!config || !has_what_it_mounts(pod)) return;
  if (strict) {
    const auto account = shown("ServiceAccount", json_text(pod["spec"], "serviceAccountName"));
    container.account = (*account)["metadata"]["uid"];
    container.began = clock_.at();
  }
  container.replicas =
      Json::parse((*config)["data"][contract::kWorkerJobFile].get<std::string>())["replicas"];
  containers_[uid] = container;
  server_.edit(pods(), kNs, name, [](Json& object) {
    object["status"]["phase"] = "Running";
    object["status"]["containerStatuses"] = Json::array(
        {{{"name", contract::kContainerName}, {"state", {{"running", Json::object()}}}}});
  });
}

void Agents::tell_end(Container& container) {
  container.told = true;
  server_.edit(pods(), kNs, container.pod, [&](Json& object) {
    object["status"]["phase"] = sidecars                   ? "Running"
                                : container.exit_code == 0 ? "Succeeded"
                                                           : "Failed";
    Json state = {{"exitCode", container.exit_code}};
    if (!container.words.is_null()) state["message"] = container.words.dump();
    object["status"]["containerStatuses"] =
        Json::array({{{"name", contract::kContainerName}, {"state", {{"terminated", state}}}}});
    if (!sidecars) return;
    object["status"]["containerStatuses"].push_back(
        {{"name", "sidecar"}, {"state", {{"running", Json::object()}}}});
  });
}

/// The scheduler says once that a pod has no place.
bool Agents::has_place(const Json& pod) {
  const auto& conditions = json_child(json_child(pod, "status"), "conditions");
  const auto taken = std::ranges::count_if(server_.shown(pods()), [&](const auto& other) {
    return label_of(*other, contract::kLabelJobName) == job_ &&
           !other->at("spec").value("nodeName", "").empty();
  });
  if (taken < places) return true;
  if (!conditions.empty()) return false;
  server_.edit(pods(), kNs, pod["metadata"]["name"], [](Json& object) {
    object["status"]["conditions"] = Json::array({{{"type", "PodScheduled"},
                                                   {"status", "False"},
                                                   {"reason", "Unschedulable"},
                                                   {"message", "0/4 nodes are available"}}});
  });
  return false;
}

void Agents::leave_places(int count) {
  places = count;
  int bound = 0;
  for (const auto& object : server_.shown(pods())) {
    const Json& pod = *object;
    if (label_of(pod, contract::kLabelJobName) != job_) continue;
    if (pod["spec"].value("nodeName", "").empty() || ++bound <= count) continue;
    const auto found = containers_.find(pod["metadata"]["uid"]);
    if (found != containers_.end()) found->second.alive = false;
    api_delete("Pod", pod["metadata"]["name"], true);
  }
}

void Agents::kubelets(const Faults& faults) {
  std::set<std::string> there;
  for (const auto& shown : server_.shown(pods())) {
    const Json& pod = *shown;
    if (label_of(pod, contract::kLabelJobName) != job_) continue;
    const std::string uid = pod["metadata"]["uid"], name = pod["metadata"]["name"];
    there.insert(uid);
    const bool deleting = pod["metadata"].contains("deletionTimestamp");
    const std::string node = pod["spec"].value("nodeName", "");
    const auto found = containers_.find(uid);
    if (node.empty()) {
      const std::string choice = platform_.any_node();
      if (deleting || !has_place(pod)) continue;
      if (avoids(pod, choice) || platform_.marked_away(choice)) continue;
      server_.edit(pods(), kNs, name, [&](Json& object) { object["spec"]["nodeName"] = choice; });
      continue;
    }
    if (platform_.away(node)) continue;
    if (found == containers_.end()) {
      if (deleting) {
        api_delete("Pod", name, true);
      } else {
        start_container(pod);
      }
      continue;
    }
    Container& container = found->second;
    if (container.alive && deleting && !container.kill_at) {
      container.term = true;
      container.kill_at = time_from_text(pod["metadata"]["deletionTimestamp"]);
    }
    if (container.alive && container.kill_at && clock_.at() >= *container.kill_at) {
      container.alive = false;
      container.exit_code = 137;
    }
    if (!container.alive && !container.told) {
      tell_end(container);
      if (container.exit_code == 0 && chance_.happens(faults.collect)) {
        api_delete("Pod", name, true);
      }
    } else if (!container.alive && deleting) {
      api_delete("Pod", name, true);
    } else if (container.alive && !deleting) {
      if (chance_.happens(faults.pod_delete)) api_delete("Pod", name, false);
      if (chance_.happens(faults.agent_kill)) {
        container.alive = false;
        container.exit_code = 137;
        ++crashes;
        if (container.worker == 0 && urgent_) died_unheard = true;
      }
      if (chance_.happens(faults.evict)) {
        server_.edit(pods(), kNs, name, [](Json& object) {
          object["status"]["conditions"].push_back(
              {{"type", "DisruptionTarget"}, {"status", "True"}});
        });
        api_delete("Pod", name, false);
      }
    }
  }
  // Whose pod object is gone is killed, where the kubelet can be reached.
  for (auto& [uid, container] : containers_) {
    if (there.contains(uid) || platform_.away(container.node)) continue;
    container.alive = false;
  }
}

Container* Agents::alive_worker(int worker, const std::string& revision) {
  for (auto& [uid, container] : containers_) {
    if (container.alive && !container.cut_since && container.worker == worker &&
        container.revision == revision) {
      return &container;
    }
  }
  return nullptr;
}

std::shared_ptr<const Json> Agents::job_now() const {
  return server_.shown(jobs_resource(), kNs, job_);
}

/// The operator's part of a job's status, read once for each version of the job.
const OwnStatus& Agents::told_by_operator(const std::shared_ptr<const Json>& job) const {
  if (job != told_of_) {
    told_ = own_status_from_json(own_part(job->value("status", Json::object())));
    told_of_ = job;
  }
  return told_;
}

const Container* Agents::zero() const {
  for (const auto& [uid, container] : containers_) {
    if (container.alive && !container.cut_since && container.worker == 0) return &container;
  }
  return nullptr;
}

/// A pod of a larger gang that may follow this one.
bool Agents::beyond_the_gang(const Container& container) const {
  const Container* first = zero();
  return first && container.revision != first->revision && container.worker >= first->replicas;
}

/// While the gang before it ends, it waits.
bool Agents::of_the_next_gang(const Container& container) const {
  const auto job = job_now();
  if (!job || (*job)["spec"].value("suspend", false) || !beyond_the_gang(container)) return false;
  const OwnStatus& st = told_by_operator(job);
  return !is_true(st.conditions, "Failed") && st.revision == container.revision;
}

void Agents::spares_leave() {
  for (auto& [uid, container] : containers_) {
    if (!container.alive || !container.term || container.cut_since) continue;
    if (beyond_the_gang(container)) {
      finish(container, contract::kExitPreempted, contract::kReasonPreempted, 0);
    }
  }
}

bool Agents::stop_wanted() const {
  for (const auto& [uid, container] : containers_) {
    if (container.alive && container.term && !beyond_the_gang(container)) return true;
  }
  return job_stops();
}

/// Suspended, failed, or another revision is in force.
bool Agents::job_stops() const {
  if (bugs_.ignores_suspend) return false;
  const auto job = job_now();
  if (!job) return false;
  if ((*job)["spec"].value("suspend", false)) return true;
  if (is_true(told_by_operator(job).conditions, "Failed")) return true;
  const std::string revision = json_text(json_child(*job, "status"), "revision");
  return std::ranges::any_of(containers_, [&](const auto& entry) {
    return entry.second.alive && entry.second.worker == 0 && !revision.empty() &&
           entry.second.revision != revision;
  });
}

void Agents::finish(Container& container, int code, const std::string& reason, int64_t step) {
  container.alive = false;
  container.exit_code = code;
  container.words = {{"reason", reason}, {"message", reason}, {"step", step}, {"attempt", attempt}};
  if (code != contract::kExitDone) return;
  done[attempt].insert(container.worker);
  if (!first_completed) first_completed = clock_.at();
}

/// What the operator has counted.
void Agents::account() {
  const auto job = job_now();
  if (!job) return;
  const auto& restarts = json_child(json_child(*job, "status"), "restarts");
  account_ = {.limit = (*job)["spec"].value("backoffLimit", 3),
              .used = static_cast<int>(json_whole(restarts, "counted").value_or(0)),
              .saved_step = json_whole(restarts, "savedStep").value_or(-1)};
  const int64_t known = json_whole(restarts, "attempt").value_or(0);
  if (bugs_.charges_twice) return;
  std::erase_if(charged_, [&](const ChargedEnd& end) { return end.attempt <= known; });
}

void Agents::lose_attempt(int worker, const std::string& reason, int exit_code) {
  running_ = leaving_ = false;
  stop_.reset();
  if (!last_failure_.is_null()) earlier_failures_.push_back(last_failure_);
  if (earlier_failures_.size() > report::kEarlierFailuresMax) {
    earlier_failures_.erase(earlier_failures_.begin());
  }
  last_failure_ = {{"time", to_text(clock_.at())},
                   {"attempt", attempt},
                   {"worker", worker},
                   {"step", step_},
                   {"savedStep", saved},
                   {"reason", reason},
                   {"message", "the attempt ended"}};
  if (reason != "WorkerLost") {
    last_failure_["rank"] = worker;
    last_failure_["exitCode"] = exit_code;
  }
  urgent_ = true;
  not_before_ = clock_.at() + Seconds(1);
  const bool lost = reason == "WorkerLost";
  if (!agent_charges(worker, lost ? -1 : worker, true)) return;
  account();
  charged_.push_back({attempt, saved});
  const auto verdict = charge_ends(account_, charged_);
  ++charged;
  if (verdict.allowed) return;
  for (auto& [uid, container] : containers_) {
    if (container.alive && !container.cut_since) {
      finish(container, contract::kExitFailed, contract::kReasonBackoffLimitExceeded, step_);
    }
  }
}

/// Who finds no worker 0 for too long ends as a victim.
void Agents::give_up() {
  for (auto& [uid, container] : containers_) {
    if (!container.alive || container.cut_since) continue;
    if (!container.alone_since) container.alone_since = clock_.at();
    if (clock_.at() < *container.alone_since + kJoinTimeout) continue;
    finish(container, contract::kExitPeerLost, "PeerLost", 0);
    container.words["attempt"] = 0;
  }
}

void Agents::maybe_start() {
  if (clock_.at() < not_before_ || stop_wanted()) {
    // Before an attempt a stop is at once.
    const bool all = job_stops();
    for (auto& [uid, container] : containers_) {
      if (all && of_the_next_gang(container)) continue;
      if (container.alive && !container.cut_since && (all || container.term)) {
        finish(container, contract::kExitPreempted, contract::kReasonPreempted, saved);
      }
    }
    return;
  }
  const Container* first = zero();
  if (!first) return give_up();
  if (lacks_key() || (first->replicas > 1 && first->authority.empty())) return;
  for (auto& [uid, container] : containers_) container.alone_since.reset();
  std::vector<std::string> members;
  for (int worker = 0; worker < first->replicas; ++worker) {
    const Container* member = alive_worker(worker, first->revision);
    if (!member || member->term || member->authority != first->authority) return;
    members.push_back(member->uid);
  }
  if (bugs_.attempt_falls && first->incarnation > 1) attempt = 0;
  ++attempt;
  running_ = true;
  sizes[attempt] = first->replicas;
  members_ = std::move(members);
  step_ = saved;
  urgent_ = true;
  // Not by chance, so that what the seeds do stays as it was.
  if (saved > 0 && attempt % 3 == 2) {
    damage_ = {{"attempt", attempt},
               {"step", saved},
               {"message", "found by attempt " + std::to_string(attempt)}};
    saved = std::max<int64_t>(0, saved - kSaveEvery);
    last_step_saved = false;
    step_ = saved;
  }
}

void Agents::run_step() {
  if (stop_ && step_ < *stop_) ++step_;
  if (!stop_ && step_ < total_steps) ++step_;
  stepped_ = clock_.at();
  const bool last = step_ >= total_steps || (bugs_.completes_early && step_ >= total_steps - 3);
  if (step_ % kSaveEvery == 0 || step_ >= total_steps || (stop_ && step_ >= *stop_)) {
    if (step_ > saved) urgent_ = true;
    saved = std::max(saved, step_);
  }
  last_step_saved |= saved >= total_steps;
  if (last || (stop_ && step_ >= *stop_)) leaving_ = true;
  // Every rank has ended with exit code 0 before any agent says so.
  if (last) {
    for (const std::string& uid : members_) done[attempt].insert(containers_[uid].worker);
  }
}

void Agents::gang(const Faults& faults) {
  if (!running_ && pods_crash) {
    for (auto& [uid, container] : containers_) {
      if (!container.alive) continue;
      container.exit_code = 1;
      container.alive = false;
      ++crashes;
    }
  }
  if (!running_) return maybe_start();
  for (size_t i = 0; i < members_.size() && !leaving_; ++i) {
    const Container& member = containers_[members_[i]];
    if (!member.alive || member.cut_since) {
      return lose_attempt(static_cast<int>(i), "WorkerLost", 0);
    }
  }
  if (fatal) {
    for (const std::string& uid : members_) {
      finish(containers_[uid], contract::kExitEnvironment, "NoSpace", step_);
    }
    running_ = false;
    return;
  }
  // So that pods are lost in attempts of the crash loop, too.
  if (may_crash_always && !leaving_ && !stop_wanted() && chance_.happens(0.7)) return;
  if (!leaving_ && (may_crash_always || chance_.happens(faults.rank_crash))) {
    ++crashes;
    return lose_attempt(chance_.below(static_cast<int>(members_.size())), "RankFailed", 1);
  }
  if (!stop_ && !leaving_ && stop_wanted()) {
    stop_ = std::min(step_ + 2, total_steps);
    urgent_ = true;
  }
  if (!leaving_) run_step();
  if (!leaving_) return;
  // All end with the same word, one after the other; agent 0 waits until its report is stored. If
  // pods are taken away only those end, and the others wait for their successors.
  const bool complete = step_ >= total_steps || bugs_.completes_early;
  const bool all = complete || job_stops();
  bool any = false;
  for (const std::string& uid : members_) {
    Container& member = containers_[uid];
    if (!member.alive || (!all && !member.term)) continue;
    const bool refused = refused_ && clock_.at() >= *refused_ + kRefusalsTaken;
    const bool waits = member.worker == 0 && urgent_ && !refused;
    if (!waits && chance_.happens(0.7) && !member.cut_since) {
      finish(member, complete ? contract::kExitDone : contract::kExitPreempted,
             complete ? contract::kReasonCompleted : contract::kReasonPreempted, step_);
    } else {
      any = true;
    }
  }
  if (!any) {
    running_ = leaving_ = false;
    stop_.reset();
    not_before_ = clock_.at() + Seconds(1);
  }
}

/// Agent 0's part of the status; a report that is not stored is tried again.
void Agents::report() {
  const bool due = clock_.at() >= reported_ + Seconds(10);
  if (attempt == 0 || (!urgent_ && !due)) return;
  if (!zero()) return;
  if (!may_report(*zero())) {
    if (!refused_) refused_ = clock_.at();
    return;
  }
  refused_.reset();
  // It reads the job, and in this turn or the next writes over the version that it read.
  if (!read_) {
    read_ = job_now();
    if (chance_.happens(0.5)) return;
  }
  const auto job = std::exchange(read_, nullptr);
  if (!job) return;
  const int64_t known = job->value("status", Json::object())
                            .value("training", Json::object())
                            .value("attempt", int64_t{0});
  if (attempt < known) violations.push_back("the attempt fell from " + std::to_string(known));
  Json training = {{"attempt", attempt},
                   {"step", step_},
                   {"totalSteps", total_steps},
                   {"lastUpdatedTime", to_text(stepped_)}};
  if (step_ >= total_steps && last_step_saved) training["modelPath"] = "/o/model";
  if (stop_) training["stopStep"] = *stop_;
  if (!last_failure_.is_null()) training["lastFailure"] = last_failure_;
  const Json& restarts = json_child(json_child(*job, "status"), "restarts");
  const int64_t counted = json_whole(restarts, "attempt").value_or(0);
  std::erase_if(earlier_failures_,
                [&](const Json& failure) { return failure["attempt"] <= counted; });
  if (!earlier_failures_.empty()) training["earlierFailures"] = earlier_failures_;
  int64_t told = saved;
  if (bugs_.tells_save_before_it && stop_) told = *stop_;
  Json status = {{"training", training}};
  if (told > 0) status["checkpoint"]["lastSaved"] = {{"step", told}};
  if (!damage_.is_null()) status["checkpoint"]["lastDamaged"] = damage_;
  const Json body = {{"apiVersion", jobspec::kApiVersion},
                     {"kind", jobspec::kKind},
                     {"metadata",
                      {{"name", job_},
                       {"uid", (*job)["metadata"]["uid"]},
                       {"resourceVersion", (*job)["metadata"]["resourceVersion"]}}},
                     {"status", std::move(status)}};
  if (chance_.happens(0.1)) return;  // the API server is away for it
  if (!client_.apply(jobs_resource(), kNs, body,
                     {.manager = contract::kAgentManager, .subresource = "status"})) {
    return;
  }
  urgent_ = false;
  reported_ = clock_.at();
}

void Agents::turn(const Faults& faults) {
  power();
  kubelets(faults);
  spares_leave();
  gang(faults);
  report();
}

}  // namespace dsj::op::sim

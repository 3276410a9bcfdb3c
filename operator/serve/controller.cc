#include "operator/serve/controller.h"

#include <algorithm>
#include <set>

#include "common/json.h"
#include "common/log.h"
#include "job/contract.h"
#include "job/spec/cluster_spec.h"
#include "operator/act/trial.h"
#include "operator/decide/pod_pace.h"
#include "operator/decide/readiness.h"
#include "operator/observe/own_status.h"
#include "operator/render/render_config.h"

namespace dsj::op {
namespace {

/// How often to check whether the cause of a refusal has gone: a missing ConfigMap or template, or
/// an old API server.
constexpr Milliseconds kLookAgain{10'000};
/// How often to check whether an object of somebody else still has the name that a job needs.
constexpr Milliseconds kLookAtName{3'000};

/// True if the job has no pods yet: its first status is written before its first pod, with the
/// resource version that the pass decided on as precondition.
bool is_untouched(const JobView& job, const Plan& plan) {
  return job.own_status.empty() && !plan.status.is_null();
}

/// True if the decision depends on pods that are missing in the cache although the job may have
/// them. The cache can have a newer job than pods: each kind has its own watch, and after a
/// conflict only the job is read again.
bool rests_on_missing_pods(const Observed& observed, const Plan& plan) {
  if (!observed.job || is_untouched(*observed.job, plan)) return false;
  if (!plan.pods.empty()) return true;
  const OwnStatus status = own_status_from_json(observed.job->own_status);
  for (const char* over : {"Suspended", "Complete", "Failed"})
    if (is_true(status.conditions, over)) return false;
  std::set<int> workers;
  for (const PodView& pod : observed.pods) workers.insert(pod.worker);
  const bool missing = workers.empty() || static_cast<int>(workers.size()) < plan.workers;
  return missing && (!plan.status.is_null() || !plan.deletes.empty());
}

/// The ConfigMap of the accepted spec. It keeps the texts that the spec referred to, so that
/// neither a change of these nor a restart of the operator changes a job. Null if there is none.
const ChildView* taken_up(const Observed& observed) {
  const OwnStatus status = own_status_from_json(observed.job->own_status);
  if (status.observed_generation != observed.job->generation ||
      !is_true(status.conditions, "Accepted")) {
    return nullptr;
  }
  const auto found = std::ranges::find_if(observed.children, [&](const ChildView& child) {
    return child.kind == "ConfigMap" && child.name == status.config_map &&
           child.owner_uid == observed.job->uid;
  });
  return found == observed.children.end() ? nullptr : &*found;
}

}  // namespace

ControllerOptions Controller::completed(ControllerOptions options) {
  if (options.carry_out) return options;
  options.carry_out = [at_once = options.creates_at_once, crew = options.crew](
                          kube::Client& client, const Observed& observed, const Plan& plan,
                          const std::function<bool()>& may_write, Writes& writes,
                          EventSink& events) {
    return apply(client, observed, plan, may_write, writes, events, at_once, crew);
  };
  return options;
}

Controller::Controller(kube::Client& client, Cache& cache, Queue& queue, EventSink& events,
                       ControllerOptions options, Watcher& watcher)
    : client_(client),
      cache_(cache),
      queue_(queue),
      events_(events),
      options_(completed(std::move(options))),
      watcher_(watcher) {}

bool Controller::step(const kube::Clock& clock, Time wall) {
  Milliseconds queued{0};
  const auto key = queue_.take(clock.monotonic(), &queued);
  if (!key) return false;
  try {
    pass(*key, queued, clock, wall);
  } catch (const std::exception& error) {
    log::error(*key + ": the pass was broken off: " + error.what());
    tell_stalled(*key, error.what(), wall);
    queue_.retry(*key, clock.monotonic(), kLookAgain);
  }
  return true;
}

void Controller::tell_stalled(const std::string& key, const std::string& why, Time wall) try {
  const Observed observed = cache_.observe(key);
  if (!observed.job || observed.job->deleting || observed.job->orphaning ||
      !jobspec::other_controller(observed.job->spec).empty())
    return;
  OwnStatus status = own_status_from_json(observed.job->own_status);
  const Conditions before = status.conditions;
  set_broken_off(why, observed.job->generation, std::chrono::floor<Seconds>(wall),
                 status.conditions);
  status.reason = reason_of(status.phase, status.conditions);
  keep_small(status);
  Plan plan{.status = to_json(status), .events = events_of(before, status.conditions)};
  if (plan.status == observed.job->own_status) return;
  options_.carry_out(client_, observed, plan, options_.may_write, cache_, events_);
} catch (const std::exception& error) {
  log::error(key + ": nor could its status say so: " + error.what());
}

void Controller::forget() {
  const std::lock_guard lock(mutex_);
  memory_.clear();
}

/// If the job is not in the cache, asks the server: its children are deleted only if the server
/// does not have the job either. Returns false if the server cannot be reached.
bool Controller::confirm(const std::string& key, Observed& observed) {
  if (observed.job || (observed.pods.empty() && observed.children.empty())) return true;
  const auto live = client_.get(jobs_resource(), observed.ns, observed.name);
  if (!live) return live.error().kind == kube::ApiError::Kind::NotFound;
  cache_.wrote(jobspec::kKind, *live);
  observed = cache_.observe(key);
  return observed.job.has_value();
}

/// Reads the job's pods from the server before a decision relies on a missing pod. Otherwise a
/// worker could get a second pod, or a job that trains could be reported as suspended. This takes a
/// tenth of a second, because a server that lists from its cache waits until that is fresh.
bool Controller::look_at_pods(const std::string& key, Observed& observed) {
  std::vector<PodView> pods;
  const kube::ListOptions select{.label_selector =
                                     std::string(contract::kLabelJobName) + "=" + observed.name};
  const auto listed =
      client_.list(kube::resources::pods(), observed.ns, select, [&](const Json& object) {
        cache_.wrote("Pod", object);
        if (auto pod = pod_view(object)) pods.push_back(std::move(*pod));
      });
  if (!listed) return false;
  // Somebody may have changed the label of a pod.
  std::vector<std::string> others = observed.strayed;
  for (const PodView& pod : observed.pods) {
    const bool missing = std::ranges::count(pods, pod.name, &PodView::name) == 0;
    if (missing && others.size() < 2 * kStrayedMax) others.push_back(pod.name);
  }
  for (const std::string& name : others) {
    if (std::ranges::count(pods, name, &PodView::name) > 0) continue;
    const auto found = client_.get(kube::resources::pods(), observed.ns, name);
    if (!found && found.error().kind != kube::ApiError::Kind::NotFound) return false;
    auto pod = found ? pod_view(*found) : std::nullopt;
    if (pod && pod->owner_uid == observed.job->uid) {
      pods.push_back(std::move(*pod));
    } else {
      cache_.forget_strayed(key, name);
    }
  }
  observed.pods = std::move(pods);
  return true;
}

/// Whether the object whose name the job needs is still there. If the server cannot be asked, the
/// pass finds out.
bool Controller::still_taken(const Observed& observed) {
  if (!observed.job || !observed.refusal || observed.refusal->uid.empty()) return false;
  const Refusal& refusal = *observed.refusal;
  const auto found = client_.get(resource_of(refusal.kind), observed.ns, refusal.name);
  return found && json_text(json_child(*found, "metadata"), "uid") == refusal.uid;
}

/// The ds_config in the ConfigMap that configFrom names; nullopt if none is named or it cannot be
/// read.
std::optional<std::string> Controller::config_text(const Observed& observed, std::string& problem) {
  const auto source = config_source(observed.job->spec);
  if (!source) return std::nullopt;
  const ChildView* kept = taken_up(observed);
  if (kept && !kept->config_text.empty()) return kept->config_text;
  const auto found = client_.get(kube::resources::config_maps(), observed.ns, source->name);
  if (!found) {
    problem = found.error().to_string();
    return std::nullopt;
  }
  return config_in(*found, source->key, problem);
}

/// The DeepSpeedJobTemplate that the job names. Otherwise the operator's default, for jobs that are
/// created or edited from now on.
TemplateText Controller::template_text(const Observed& observed) {
  const ChildView* kept = taken_up(observed);
  if (kept && !kept->template_text.empty()) return {.text = kept->template_text};
  std::string name = jobspec::template_ref(observed.job->spec);
  if (name.empty() && !kept) name = options_.settings.default_template;
  if (name.empty()) return {};
  const auto found = client_.get(job_templates_resource(), "", name);
  if (!found) return {.name = name, .problem = found.error().to_string()};
  const jobspec::WorkerTemplate source{
      .name = name,
      .generation = json_whole(json_child(*found, "metadata"), "generation").value_or(0),
      .pod = json_child(json_child(*found, "spec"), "template")};
  return {.name = name, .text = jobspec::to_text(source)};
}

/// The ConfigMap with the last accepted spec. The cache may lag behind the status that names it, so
/// the server is asked if necessary. The inner optional is empty if there is none, the outer one if
/// the server cannot be reached.
std::optional<std::optional<ChildView>> Controller::kept_spec(const Observed& observed,
                                                              const std::string& name) {
  const auto is_it = [&](const ChildView& child) {
    return child.kind == "ConfigMap" && child.name == name && child.owner_uid == observed.job->uid;
  };
  const auto found = std::ranges::find_if(observed.children, is_it);
  if (found != observed.children.end()) return *found;
  const auto live = client_.get(kube::resources::config_maps(), observed.ns, name);
  if (!live) {
    if (live.error().kind != kube::ApiError::Kind::NotFound) return std::nullopt;
    return std::optional<ChildView>();
  }
  cache_.wrote("ConfigMap", *live);
  std::optional<ChildView> view = child_view(*live);
  view->kind = "ConfigMap";
  if (!is_it(*view)) view.reset();
  return view;
}

/// Sends an accepted spec with new pods to the API server for a trial. Returns false if no trial
/// was needed.
bool Controller::try_pod(const Observed& observed, Verdict& wanted, Time wall) {
  if (!wanted.accepted || taken_up(observed)) return false;
  const OwnStatus status = own_status_from_json(observed.job->own_status);
  if (status.revision == wanted.accepted->revision) return false;
  const std::string sentence =
      options_.trials->try_pod(client_, *observed.job, options_.settings, *wanted.accepted, wall)
          .refusal;
  if (!sentence.empty()) wanted = refused_by_server(*wanted.accepted, sentence);
  return true;
}

/// Observes the job and judges its spec. A trial of its pod takes time, so the job is observed
/// again after it. Returns false if something that the decision needs cannot be read now.
bool Controller::look(const std::string& key, Observed& observed, Time wall) {
  bool tried = true;
  while (tried) {
    tried = false;
    observed = cache_.observe(key);
    if (!confirm(key, observed) || !judge_spec(key, observed, wall, tried)) return false;
  }
  return true;
}

/// Returns false if something that the decision needs cannot be read now. Sets `tried` after a
/// trial at the API server.
bool Controller::judge_spec(const std::string& key, Observed& observed, Time wall, bool& tried) {
  if (!observed.job) {
    const std::lock_guard lock(mutex_);
    memory_.erase(key);
    return true;
  }
  const JobView& job = *observed.job;
  if (!jobspec::other_controller(job.spec).empty()) return true;  // reconcile ignores it
  Memory memory;
  {
    const std::lock_guard lock(mutex_);
    memory = memory_[key];
  }
  if (memory.uid != job.uid) memory = Memory{.uid = job.uid};
  const bool look_again = may_change_by_itself(memory.wanted) && wall >= memory.judged + kLookAgain;
  if (memory.generation != job.generation || memory.queue_label != job.queue_label || look_again) {
    // The ConfigMap with the accepted spec may have been deleted.
    const OwnStatus told = own_status_from_json(job.own_status);
    const bool in_force =
        told.observed_generation == memory.generation && is_true(told.conditions, "Accepted");
    const auto before = in_force ? memory.wanted.accepted : nullptr;
    std::string problem;
    const auto text = config_text(observed, problem);
    memory.queue_label = job.queue_label;
    memory.wanted = agreeing_with(job.queue_label,
                                  judge(job.name, job.spec, text, problem, template_text(observed),
                                        read_only_root(options_.settings)));
    memory.wanted =
        possible_with(std::move(memory.wanted), options_.settings.volcano, options_.settings.kueue);
    tried = try_pod(observed, memory.wanted, wall);
    if (!memory.wanted.accepted && before) {
      memory.in_force = before;
      memory.in_force_revision = told.revision;
    }
    memory.generation = job.generation;
    memory.judged = wall;
  }
  if (!memory.wanted.accepted) {
    const OwnStatus status = own_status_from_json(job.own_status);
    if (memory.in_force_revision != status.revision) memory.in_force.reset();
    if (!memory.in_force && !status.config_map.empty()) {
      const auto kept = kept_spec(observed, status.config_map);
      if (!kept) return false;
      if (*kept) {
        const Json spec = Json::parse((*kept)->spec_text, nullptr, false);
        memory.in_force =
            accepted_before(job.name, spec, (*kept)->config_text, {.text = (*kept)->template_text});
        memory.in_force_revision = status.revision;
      }
    }
    observed.in_force = memory.in_force;
  }
  observed.wanted = memory.wanted;
  observed.refusal = memory.refusal;
  observed.admitted = memory.admitted;
  observed.words = memory.words;
  observed.pods_full = memory.pods_full;
  observed.unused_key = memory.unused_key;
  observed.contests = memory.contests;
  const std::lock_guard lock(mutex_);
  memory_[key] = std::move(memory);
  return true;
}

/// Reads the events of pods that are silent. If the server does not allow this, there are none.
void Controller::read_words(const std::string& key, const Observed& observed,
                            const std::vector<std::string>& pods, Time wall) {
  PodWords words{.read = wall};
  for (const std::string& uid : pods) {
    std::vector<Json> warnings;
    (void)client_.list(kube::resources::events(), observed.ns,
                       {.field_selector = "regarding.uid=" + uid + ",type=Warning"},
                       [&](const Json& event) { warnings.push_back(event); });
    words.of[uid] = words_of(warnings, wall);
  }
  const std::lock_guard lock(mutex_);
  memory_[key].words = std::move(words);
}

/// A server error on a create may be transient. After three in a row it is reported like a refusal.
void Controller::note_create_problem(const std::string& key, Applied& applied) {
  constexpr int kTries = 3;
  const std::lock_guard lock(mutex_);
  int& row = memory_[key].create_problems;
  row = applied.create_problem.empty() ? 0 : row + 1;
  if (row >= kTries && !applied.refusal)
    applied.refusal = Refusal{"CannotCreate", applied.create_problem};
}

void Controller::pass(const std::string& key, Milliseconds queued, const kube::Clock& clock,
                      Time wall) {
  const Milliseconds started = clock.monotonic();
  const auto again = [&](Milliseconds least) { queue_.retry(key, clock.monotonic(), least); };
  Observed observed;
  if (!look(key, observed, wall)) return again(Milliseconds(0));
  observed.settings = options_.settings;
  if (options_.token_keys) observed.token_keys = options_.token_keys();
  std::chrono::microseconds decided{0};
  auto decide = [&] {
    const auto begin = std::chrono::steady_clock::now();
    Plan plan = options_.decide(observed, wall);
    decided += std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now() - begin);
    return plan;
  };
  Plan plan = decide();
  if (rests_on_missing_pods(observed, plan)) {
    if (!look_at_pods(key, observed)) return again(Milliseconds(0));
    plan = decide();
  }
  const bool taken = (!plan.creates.empty() || !plan.pods.empty()) && still_taken(observed);
  if (taken) {  // the spec's ConfigMap is stored, because the status refers to it
    std::erase_if(plan.creates, [&](const Create& one) {
      return one.kind != "ConfigMap" || one.name == observed.refusal->name;
    });
    plan.pods.clear();
    plan.key.reset();
    if (plan.status == observed.job->own_status) plan.status = nullptr;  // it was for the key
  }
  // A pass can take long: it ends early if its job is suspended, edited or deleted meanwhile.
  auto overtaken = [&] { return observed.job && !cache_.is_current(*observed.job); };
  Applied applied = options_.carry_out(
      client_, observed, plan, [&] { return options_.may_write() && !overtaken(); }, cache_,
      events_);
  watcher_.pass(queued, decided, plan, applied);
  if (applied.status_written) watcher_.transition(*observed.job, plan);
  if (observed.job) note_create_problem(key, applied);
  const bool refusal_is_new =
      applied.refusal &&
      (!observed.refusal || observed.refusal->message != applied.refusal->message);
  if (observed.job) {
    const std::lock_guard lock(mutex_);
    Contests& contests = memory_[key].contests;
    for (const auto& [object, repair] : applied.written)
      note_repair(contests, object, repair, wall);
    for (const Delete& entry : plan.deletes) contests.erase({entry.kind, entry.name});
    for (const auto& [object, admitted] : applied.admitted)
      memory_[key].admitted[object] = admitted;
    if (applied.key.run > 0 && applied.status_written) memory_[key].unused_key = applied.key;
    if (applied.pods > 0) {
      memory_[key].unused_key = {};
      Time& full = memory_[key].pods_full;
      full = pods_paid(full, plan.workers, applied.pods, wall);
    }
    auto& refusal = memory_[key].refusal;
    // A refusal is kept until a create succeeds or none is planned.
    if (applied.refusal) refusal = applied.refusal;
    if (!taken && (applied.created > 0 || (plan.creates.empty() && plan.pods.empty()))) {
      if (!applied.refusal && refusal) queue_.add(key, started);  // the status still shows it
      if (!applied.refusal) refusal.reset();
    }
  }
  if (!applied.done) {
    const bool told = applied.refusal && !refusal_is_new;  // also in the log
    if (!applied.problem.empty() && !applied.overtaken && !told && !overtaken()) {
      log::warn(key + ": " + applied.problem);
    }
    // The decision may be based on an old object: the next pass uses what the server has.
    if (observed.job) {
      const auto live = client_.get(jobs_resource(), observed.ns, observed.name);
      if (live) cache_.wrote(jobspec::kKind, *live);
      if (!live && live.error().kind == kube::ApiError::Kind::NotFound) cache_.forget_job(key);
    }
    again(refusal_is_new ? Milliseconds(0) : applied.retry_after);
    // No watch shows the object of somebody else.
    if (applied.refusal && !applied.refusal->uid.empty() && !refusal_is_new)
      queue_.add(key, clock.monotonic() + kLookAtName);
    return;
  }
  queue_.finish(key, clock.monotonic());
  if (taken) queue_.add(key, started + kLookAtName);
  if (!plan.ask.empty()) {
    read_words(key, observed, plan.ask, wall);
    queue_.add(key, started);
  }
  if (may_change_by_itself(observed.wanted)) queue_.add(key, started + kLookAgain);
  if (plan.again) {
    const auto delay = std::chrono::ceil<Milliseconds>(*plan.again - wall);
    queue_.add(key, started + std::max(delay, Milliseconds(1)));
  }
}

}  // namespace dsj::op

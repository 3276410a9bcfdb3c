#include "operator/observe/cache.h"

#include <atomic>
#include <charconv>

#include "common/json.h"
#include "common/log.h"
#include "job/contract.h"
#include "operator/observe/child_content.h"
#include "operator/observe/conditions.h"
#include "operator/observe/lost_nodes.h"

namespace dsj::op {
namespace {

/// A server's resource versions rise. A version that is not a number counts as newer.
bool older(const std::string& version, const std::string& than) {
  uint64_t a = 0, b = 0;
  auto whole = [](const std::string& text, uint64_t& value) {
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    return !text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size();
  };
  return whole(version, a) && whole(than, b) && a < b;
}

std::string name_of(const Json& object) {
  return object.at("metadata").value("name", "");
}

std::string ns_of(const Json& object) {
  return object.at("metadata").value("namespace", "");
}

/// Whether a change of the job needs a pass. A mere progress report of agent 0 does not, unless the
/// job is marked as not progressing.
bool matters(const JobView& before, const JobView& after) {
  if (before.uid != after.uid || before.generation != after.generation ||
      before.deleting != after.deleting || before.agent.attempt != after.agent.attempt ||
      before.agent.stop_step != after.agent.stop_step ||
      before.agent.saved_step != after.agent.saved_step ||
      before.agent.damaged_attempt != after.agent.damaged_attempt ||
      before.agent.stragglers != after.agent.stragglers) {
    return true;
  }
  if (before.agent.updated == after.agent.updated) return false;
  const auto found = after.own_status.find("conditions");
  if (found == after.own_status.end()) return false;
  const auto conditions = conditions_from_json(*found);
  const Condition* progressing = find_condition(conditions, "Progressing");
  return progressing && progressing->status == "False";
}

}  // namespace

std::string key_of(const std::string& ns, const std::string& name) {
  return ns + "/" + name;
}

std::pair<std::string, std::string> split_key(const std::string& key) {
  const size_t slash = key.find('/');
  return {key.substr(0, slash), key.substr(slash + 1)};
}

class Cache::KindSink final : public kube::Sink {
 public:
  KindSink(Cache& cache, std::string kind, std::string ns)
      : cache_(cache), kind_(std::move(kind)), ns_(std::move(ns)) {}

  void list_begin() override {
    seen_.clear();
    oldest_kept_.clear();
    const std::lock_guard lock(mutex_);
    before_ = newest_;
  }
  void listed(const Json& object) override {
    seen_.insert(key_of(ns_of(object), name_of(object)));
    const std::string kept = cache_.newer_than(kind_, object);
    if (!kept.empty() && (oldest_kept_.empty() || older(kept, oldest_kept_))) oldest_kept_ = kept;
    take(object);
  }
  /// A list contains everything written up to its version. If the watch was already ahead of it, or
  /// if a listed object is older than the cached one although that precedes the list's version, the
  /// server's history changed: it was restored from a backup.
  bool list_at(const std::string& version) override {
    const bool restored =
        older(version, before_) || (!oldest_kept_.empty() && !older(version, oldest_kept_));
    if (restored) {
      log::warn("list of " + kind_ + ": the server's versions run from " + version +
                " again, as after a restore; what was known of them is forgotten");
      cache_.forget_versions(kind_, ns_);
      const std::lock_guard lock(mutex_);
      newest_.clear();
      return false;
    }
    reached(version);
    return true;
  }
  void list_done() override {
    // Our own writes may have added objects meanwhile. Those newer than the list are not in it.
    for (const auto& [name, version] : cache_.names(kind_, ns_)) {
      if (!seen_.contains(name) && has_passed(version)) cache_.drop(kind_, name, version);
    }
    seen_.clear();  // the names of ten thousand pods take a megabyte
    filled_ = true;
  }
  void list_aborted() override { seen_.clear(); }
  void upserted(const Json& object) override { take(object); }
  void deleted(const Json& object) override try {
    told(object);
    cache_.remove(kind_, object);
  } catch (const std::exception& error) {
    log::error("a deleted " + kind_ + " cannot be read: " + error.what());
  }
  bool filled() const { return filled_; }
  bool brings(const std::string& kind, const std::string& ns) const {
    return kind_ == kind && (ns_.empty() || ns_ == ns);
  }
  /// Whether the watch has reached `version`.
  bool has_passed(const std::string& version) const {
    const std::lock_guard lock(mutex_);
    return !newest_.empty() && !older(newest_, version);
  }

 private:
  /// An object that cannot be read is skipped; the watch continues.
  void take(const Json& object) try {
    told(object);
    cache_.upsert(kind_, object);
  } catch (const std::exception& error) {
    log::error("a " + kind_ + " cannot be read: " + error.what());
  }
  void told(const Json& object) { reached(object.at("metadata").value("resourceVersion", "")); }
  void reached(const std::string& version) {
    const std::lock_guard lock(mutex_);
    if (newest_.empty() || older(newest_, version)) newest_ = version;
  }

  Cache& cache_;
  const std::string kind_, ns_;
  std::set<std::string> seen_;
  std::string before_;  ///< version that the watch had reached before the list
  /// lowest version of the cached objects that are newer than in the list
  std::string oldest_kept_;
  mutable std::mutex mutex_;
  std::string newest_;  ///< resourceVersion
  std::atomic<bool> filled_ = false;
};

Cache::Cache(std::function<void(const std::string&)> changed) : changed_(std::move(changed)) {}
Cache::~Cache() = default;

kube::Sink& Cache::sink(const std::string& kind, const std::string& ns) {
  sinks_.push_back(std::make_unique<KindSink>(*this, kind, ns));
  return *sinks_.back();
}

bool Cache::synced() const {
  for (const auto& sink : sinks_) {
    if (!sink->filled()) return false;
  }
  return true;
}

void Cache::upsert(const std::string& kind, const Json& object) {
  if (kind == "Node") return upsert_node(object);
  std::optional<std::string> tell;
  {
    const std::lock_guard lock(mutex_);
    tell = put(kind, object);
  }
  if (tell) changed_(*tell);
}

/// Returns the key of the job that needs a pass. Requires the lock.
std::optional<std::string> Cache::put(const std::string& kind, const Json& object) {
  if (kind == contract::kKind) {
    JobView job = job_view(object);
    const std::string key = key_of(job.ns, job.name);
    auto& slot = entries_[key].job;
    if (slot && slot->uid == job.uid && older(job.resource_version, slot->resource_version)) {
      return std::nullopt;
    }
    const bool tell = !slot || matters(*slot, job);
    slot = std::move(job);
    return tell ? std::optional(key) : std::nullopt;
  }
  const std::string name = job_of(object);
  if (name.empty()) return std::nullopt;
  const std::string key = key_of(ns_of(object), name);
  if (kind == "Pod") {
    auto pod = pod_view(object);
    if (!pod) return std::nullopt;
    auto [slot, is_new] = entries_[key].pods.try_emplace(pod->name);
    if (!is_new && slot->second.uid == pod->uid &&
        older(pod->resource_version, slot->second.resource_version)) {
      return std::nullopt;
    }
    entries_[key].strayed.erase(pod->name);
    slot->second = std::move(*pod);
    return key;
  }
  ChildView child = child_view(object);
  child.kind = kind;  // items of a list have no kind
  child.content = content_of(kind, object);
  ChildView& slot = entries_[key].children[kind + "/" + child.name];
  if (slot.uid == child.uid && older(child.resource_version, slot.resource_version)) {
    return std::nullopt;
  }
  slot = std::move(child);
  return key;
}

/// Erases the object of that kind and name if `is_it` accepts it. Returns whether it was erased.
template <typename IsIt>
bool Cache::erase(Entry& entry, const std::string& kind, const std::string& name,
                  const IsIt& is_it) {
  if (kind == contract::kKind) {
    if (!entry.job || entry.job->name != name || !is_it(*entry.job)) return false;
    entry.job.reset();
    return true;
  }
  if (kind == "Pod") {
    const auto pod = entry.pods.find(name);
    if (pod == entry.pods.end() || !is_it(pod->second)) return false;
    entry.pods.erase(pod);
    return true;
  }
  const auto child = entry.children.find(kind + "/" + name);
  if (child == entry.children.end() || !is_it(child->second)) return false;
  entry.children.erase(child);
  return true;
}

void Cache::remove(const std::string& kind, const Json& object) {
  const std::string uid = object.at("metadata").value("uid", "");
  std::string key;
  {
    const std::lock_guard lock(mutex_);
    if (kind == "Node") {
      nodes_.erase(name_of(object));
      return;
    }
    key = kind == contract::kKind ? key_of(ns_of(object), name_of(object))
                                  : key_of(ns_of(object), job_of(object));
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    // A watch reports an object that lost its labels as deleted. A deletion of a pod sets a time.
    if (kind == "Pod" && !object.at("metadata").contains("deletionTimestamp") &&
        found->second.strayed.size() < kStrayedMax) {
      found->second.strayed.insert(name_of(object));
    }
    erase(found->second, kind, name_of(object), [&](const auto& view) { return view.uid == uid; });
    if (found->second.empty()) entries_.erase(found);
  }
  changed_(key);
}

/// Removes an object that a new list lacks: it was deleted while no watch ran. A newer object with
/// the same name stays.
void Cache::drop(const std::string& kind, const std::string& ns_and_name,
                 const std::string& version) {
  std::vector<std::string> tell;
  {
    const std::lock_guard lock(mutex_);
    const auto [ns, name] = split_key(ns_and_name);
    if (kind == "Node") {
      nodes_.erase(name);
      return;
    }
    for (auto at = entries_.begin(); at != entries_.end();) {
      auto& [key, entry] = *at;
      const auto is_it = [&](const auto& view) { return view.resource_version == version; };
      if (split_key(key).first == ns && erase(entry, kind, name, is_it)) tell.push_back(key);
      at = entry.empty() ? entries_.erase(at) : std::next(at);
    }
  }
  for (const std::string& key : tell) changed_(key);
}

/// Every object of a kind as "NAMESPACE/NAME" with its version, in one namespace or, if `ns` is "",
/// in all.
std::map<std::string, std::string> Cache::names(const std::string& kind,
                                                const std::string& ns) const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::string> all;
  if (kind == "Node") {
    for (const auto& [name, node] : nodes_) all[key_of("", name)] = "";
    return all;
  }
  for (const auto& [key, entry] : entries_) {
    const std::string own = split_key(key).first;
    if (!ns.empty() && own != ns) continue;
    if (kind == contract::kKind && entry.job) all[key] = entry.job->resource_version;
    if (kind == "Pod") {
      for (const auto& [name, pod] : entry.pods) all[key_of(own, name)] = pod.resource_version;
    }
    for (const auto& [id, child] : entry.children) {
      if (child.kind == kind) all[key_of(own, child.name)] = child.resource_version;
    }
  }
  return all;
}

/// The version of the cached object with that name and uid, if it is newer; else empty.
std::string Cache::newer_than(const std::string& kind, const Json& object) const {
  const std::string name = name_of(object);
  const Json& metadata = json_child(object, "metadata");
  const auto newer = [&](const auto& view) {
    const bool is = view.uid == json_text(metadata, "uid") &&
                    older(json_text(metadata, "resourceVersion"), view.resource_version);
    return is ? view.resource_version : std::string();
  };
  const bool is_job = kind == contract::kKind;
  const std::string job = is_job ? name : label_of(object, contract::kLabelJobName);
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key_of(ns_of(object), job));
  if (found == entries_.end()) return {};
  const Entry& entry = found->second;
  if (is_job) return entry.job ? newer(*entry.job) : "";
  if (kind == "Pod") {
    const auto pod = entry.pods.find(name);
    return pod == entry.pods.end() ? "" : newer(pod->second);
  }
  const auto child = entry.children.find(kind + "/" + name);
  return child == entry.children.end() ? "" : newer(child->second);
}

/// Clears the versions of the cached objects of a kind, so that any object replaces them.
void Cache::forget_versions(const std::string& kind, const std::string& ns) {
  const std::lock_guard lock(mutex_);
  for (auto& [key, entry] : entries_) {
    if (!ns.empty() && split_key(key).first != ns) continue;
    if (kind == contract::kKind && entry.job) entry.job->resource_version.clear();
    if (kind == "Pod")
      for (auto& [name, pod] : entry.pods) pod.resource_version.clear();
    for (auto& [id, child] : entry.children)
      if (child.kind == kind) child.resource_version.clear();
  }
}

void Cache::upsert_node(const Json& object) {
  const std::string name = name_of(object);
  const NodeView node = node_view(object);
  const bool watched = synced();
  {
    const std::lock_guard lock(mutex_);
    const auto [slot, is_new] = nodes_.try_emplace(name, node);
    // A new node may have the name of a lost one. Before the first list is complete, every job
    // still has its first pass ahead.
    if (is_new ? node.ready && !watched : slot->second.ready == node.ready) return;
    slot->second = node;
  }
  tell_node(name);
}

/// Requests passes for jobs with a pod on the node, or with a pending pod that avoids it.
void Cache::tell_node(const std::string& node) {
  std::vector<std::string> tell;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, entry] : entries_) {
      for (const auto& [name, pod] : entry.pods) {
        const bool avoids = !pod.avoids.empty() && avoids_from_text(pod.avoids).contains(node);
        if (pod.node != node && !(pod.node.empty() && avoids)) continue;
        tell.push_back(key);
        break;
      }
    }
  }
  for (const std::string& key : tell) changed_(key);
}

Observed Cache::observe(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  Observed observed;
  std::tie(observed.ns, observed.name) = split_key(key);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return observed;
  observed.job = found->second.job;
  std::set<std::string> nodes;  // nodes of its pods, and nodes that new pods may have to avoid
  if (observed.job) nodes = lost_nodes(json_child(observed.job->own_status, "failureHistory"));
  for (const auto& [name, pod] : found->second.pods) {
    nodes.insert(pod.node);
    observed.pods.push_back(pod);
  }
  for (const std::string& name : nodes) {
    if (const auto node = nodes_.find(name); node != nodes_.end())
      observed.nodes[name] = node->second;
  }
  for (const auto& [name, child] : found->second.children) observed.children.push_back(child);
  observed.strayed.assign(found->second.strayed.begin(), found->second.strayed.end());
  return observed;
}

bool Cache::is_current(const JobView& job) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key_of(job.ns, job.name));
  if (found == entries_.end() || !found->second.job) return false;
  const JobView& now = *found->second.job;
  return now.uid == job.uid && now.generation == job.generation && now.deleting == job.deleting;
}

std::vector<std::string> Cache::keys() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [key, entry] : entries_) all.push_back(key);
  return all;
}

size_t Cache::jobs() const {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const auto& [key, entry] : entries_) count += entry.job.has_value();
  return count;
}

size_t Cache::pods() const {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const auto& [key, entry] : entries_) count += entry.pods.size();
  return count;
}

std::map<std::string, int64_t> Cache::phases() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, int64_t> counts;
  for (const auto& [key, entry] : entries_) {
    if (!entry.job) continue;
    const std::string phase = json_text(entry.job->own_status, "phase");
    ++counts[phase.empty() ? "Pending" : phase];
  }
  return counts;
}

void Cache::wrote(const std::string& kind, const Json& object) {
  const std::string ns = ns_of(object);
  const std::string version = object.at("metadata").value("resourceVersion", "");
  std::optional<std::string> tell;
  {
    // One lock for check and update: a list that ends in between would not see the object.
    const std::lock_guard lock(mutex_);
    for (const auto& sink : sinks_) {
      // The watch delivered it before the answer came, and perhaps its deletion too.
      if (sink->brings(kind, ns) && sink->has_passed(version)) return;
    }
    tell = put(kind, object);
  }
  if (tell) changed_(*tell);
}

void Cache::absent(const std::string& kind, const std::string& ns, const std::string& name,
                   const std::string& uid) {
  std::vector<std::string> tell;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = entries_.begin(); at != entries_.end();) {
      auto& [key, entry] = *at;
      const auto is_it = [&](const auto& view) { return view.uid == uid; };
      if (split_key(key).first == ns && erase(entry, kind, name, is_it)) tell.push_back(key);
      at = entry.empty() ? entries_.erase(at) : std::next(at);
    }
  }
  for (const std::string& key : tell) changed_(key);
}

void Cache::forget_strayed(const std::string& key, const std::string& pod) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  found->second.strayed.erase(pod);
  if (found->second.empty()) entries_.erase(found);
}

void Cache::forget_job(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  found->second.job.reset();
  if (found->second.empty()) entries_.erase(found);
}

}  // namespace dsj::op
